package kagzi

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/kind"
)

func TestRetryPolicyDefaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		got, want RetryPolicy
	}{
		{"Zero", RetryPolicy{}, RetryPolicy{MaxAttempts: 3, Backoff: time.Second, Factor: 2, MaxBackoff: time.Minute}},
		{
			"SetFieldsStay",
			RetryPolicy{MaxAttempts: 7, Backoff: time.Minute, Factor: 1, MaxBackoff: time.Hour, NoJitter: true},
			RetryPolicy{MaxAttempts: 7, Backoff: time.Minute, Factor: 1, MaxBackoff: time.Hour, NoJitter: true},
		},
		{"ForeverHasNoLimit", RetryPolicy{Forever: true}, RetryPolicy{
			Forever: true, Backoff: time.Second, Factor: 2,
			MaxBackoff: time.Minute,
		}},
		{
			"LongBackoffIsNotCutByTheDefaultMaximum",
			RetryPolicy{Backoff: time.Hour},
			RetryPolicy{MaxAttempts: 3, Backoff: time.Hour, Factor: 2, MaxBackoff: time.Hour},
		},
		{
			"DefaultBackoffStaysBelowAShortMaximum",
			RetryPolicy{MaxBackoff: time.Millisecond},
			RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond, Factor: 2, MaxBackoff: time.Millisecond},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := test.got.withDefaults()
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v; want %+v", got, test.want)
			}
			if again := got.withDefaults(); !reflect.DeepEqual(again, got) {
				t.Errorf("defaults of defaults are %+v; want %+v", again, got)
			}
			if err := got.validate(); err != nil {
				t.Errorf("defaults are refused: %v", err)
			}
		})
	}
}

func TestRetryPolicyValidate(t *testing.T) {
	t.Parallel()
	for _, p := range []RetryPolicy{
		{},
		{MaxAttempts: 1},
		{Forever: true},
		{Factor: 1},
		{Factor: math.MaxFloat64},
		{Backoff: time.Microsecond, MaxBackoff: time.Microsecond},
		{Backoff: duration.Longest},
		{MaxBackoff: time.Millisecond}, // below the default Backoff
	} {
		if err := p.validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for want, p := range map[string]RetryPolicy{
		"MaxAttempts is -1":            {MaxAttempts: -1},
		"Forever and MaxAttempts 3":    {Forever: true, MaxAttempts: 3},
		"Factor is 0.5":                {Factor: 0.5},
		"Factor is -2":                 {Factor: -2},
		"Factor is NaN":                {Factor: math.NaN()},
		"Factor is +Inf":               {Factor: math.Inf(1)},
		"Factor is -Inf":               {Factor: math.Inf(-1)},
		"Backoff is -1s":               {Backoff: -time.Second},
		"MaxBackoff is -1s":            {MaxBackoff: -time.Second},
		"Backoff is 30 ns":             {Backoff: 30},
		"did you mean 30*time.Second?": {Backoff: 30},
		"RetryPolicy.MaxBackoff is 60 ns: a time.Duration counts": {MaxBackoff: 60},
		"Kinds and NotKinds":                       {Kinds: []kind.Kind{"a"}, NotKinds: []kind.Kind{"b"}},
		`"not_found", which is never retried`:      {Kinds: []kind.Kind{kind.NotFound}},
		"kind of the RetryPolicy is empty":         {NotKinds: []kind.Kind{""}},
		"MaxBackoff 1s is shorter than Backoff 1m": {Backoff: time.Minute, MaxBackoff: time.Second},
	} {
		if err := p.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v; want an error that says %q", p, err, want)
		}
	}
}

func TestRetryPolicyAllows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		p       RetryPolicy
		attempt int
		want    bool
	}{
		{RetryPolicy{}, 1, true},
		{RetryPolicy{}, 2, true},
		{RetryPolicy{}, 3, false},
		{RetryPolicy{}, math.MaxInt, false},
		{RetryPolicy{MaxAttempts: 1}, 1, false},
		{RetryPolicy{MaxAttempts: math.MaxInt}, math.MaxInt - 1, true},
		{RetryPolicy{MaxAttempts: math.MaxInt}, math.MaxInt, false},
		{RetryPolicy{Forever: true}, math.MaxInt, true},
		{RetryPolicy{Forever: true}.withDefaults(), 3, true},
		{RetryPolicy{Kinds: []kind.Kind{kind.Network, kind.Timeout}}, 1, true},
		{RetryPolicy{Kinds: []kind.Kind{kind.Network, kind.Timeout}}, 3, false},
		{RetryPolicy{Kinds: []kind.Kind{kind.Network}}, 1, false},
		{RetryPolicy{Kinds: []kind.Kind{}}, 1, true},
		{RetryPolicy{NotKinds: []kind.Kind{kind.Network}}, 1, true},
		{RetryPolicy{NotKinds: []kind.Kind{kind.Network, kind.Timeout}, Forever: true}, 1, false},
	} {
		if got := test.p.allows(test.attempt, kind.Timeout); got != test.want {
			t.Errorf("%+v allows(%d) = %v", test.p, test.attempt, got)
		}
	}
}

func TestRetryPolicyBackoff(t *testing.T) {
	t.Parallel()
	exact := func(p RetryPolicy) RetryPolicy { p.NoJitter = true; return p }
	for _, test := range []struct {
		name    string
		p       RetryPolicy
		attempt int
		random  float64
		want    time.Duration
	}{
		{"First", exact(RetryPolicy{}), 1, 0, time.Second},
		{"Second", exact(RetryPolicy{}), 2, 0, 2 * time.Second},
		{"Sixth", exact(RetryPolicy{}), 6, 0, 32 * time.Second},
		{"Capped", exact(RetryPolicy{}), 7, 0, time.Minute},
		{"LateAttempt", exact(RetryPolicy{}), 10_000, 0, time.Minute},
		{"LastAttempt", exact(RetryPolicy{}), math.MaxInt, 0, time.Minute},
		{"AttemptsCountFromOne", exact(RetryPolicy{}), 0, 0, time.Second},
		{"NegativeAttempt", exact(RetryPolicy{}), math.MinInt, 0, time.Second},
		{"Fixed", exact(RetryPolicy{Factor: 1, Backoff: 5 * time.Second}), math.MaxInt, 0, 5 * time.Second},
		{"HalfMore", exact(RetryPolicy{Factor: 1.5}), 3, 0, 2250 * time.Millisecond},
		{"LongerThanTheDefaultMaximum", exact(RetryPolicy{Backoff: time.Hour}), 3, 0, time.Hour},
		{"Huge", exact(RetryPolicy{Backoff: math.MaxInt64, Factor: math.MaxFloat64}), 10, 0, math.MaxInt64},
		{"JitterLow", RetryPolicy{}, 1, 0, 750 * time.Millisecond},
		{"JitterMiddle", RetryPolicy{}, 1, 0.5, time.Second},
		{"JitterHigh", RetryPolicy{}, 1, math.Nextafter(1, 0), 1250*time.Millisecond - 1},
		{"JitterOfTheMaximum", RetryPolicy{}, 10_000, math.Nextafter(1, 0), 75*time.Second - 1},
		{"JitterDoesNotOverflow", RetryPolicy{Backoff: math.MaxInt64}, 1, math.Nextafter(1, 0), math.MaxInt64},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.p.backoff(test.attempt, test.random); got != test.want {
				t.Errorf("got %v; want %v", got, test.want)
			}
		})
	}
}

func TestRetryPolicyBackoffStaysInBounds(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		p := randomPolicy()
		checkBackoff(t, p, rand.Int()>>rand.IntN(63), rand.Float64())
	}
}

// checkBackoff checks the properties of every valid policy.
func checkBackoff(t *testing.T, p RetryPolicy, attempt int, random float64) {
	t.Helper()
	full := p.withDefaults()
	wait := p.backoff(attempt, random)
	limit := full.MaxBackoff
	if !p.NoJitter {
		limit += min(limit/4, math.MaxInt64-limit)
	}
	if wait < full.Backoff/4*3 || wait > limit {
		t.Fatalf("%+v backoff(%d, %v) = %v; limit %v", p, attempt, random, wait, limit)
	}
	p.NoJitter = true
	if next := p.backoff(attempt+1, random); attempt < math.MaxInt && next < p.backoff(attempt, random) {
		t.Fatalf("%+v: wait %d is shorter than the one before", p, attempt+1)
	}
}

func FuzzRetryPolicyBackoff(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Minute), 2.0, 3, 0.5, false)
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), math.MaxFloat64, math.MaxInt, 0.999, true)
	f.Fuzz(func(t *testing.T, backoff, maxBackoff int64, factor float64, attempt int, random float64, noJitter bool) {
		p := RetryPolicy{
			Backoff: time.Duration(backoff), MaxBackoff: time.Duration(maxBackoff), Factor: factor,
			NoJitter: noJitter,
		}
		if p.validate() == nil && random >= 0 && random < 1 {
			checkBackoff(t, p, attempt, random)
		}
	})
}

func randomPolicy() RetryPolicy {
	p := RetryPolicy{NoJitter: rand.IntN(2) == 0}
	switch rand.IntN(3) {
	case 0:
		p.Forever = true
	case 1:
		p.MaxAttempts = 1 + rand.IntN(1000)
	}
	if rand.IntN(3) > 0 {
		p.Backoff = max(time.Microsecond, rand.N(duration.Longest)>>rand.IntN(53))
	}
	if rand.IntN(3) > 0 {
		p.MaxBackoff = max(time.Microsecond, p.Backoff, rand.N(duration.Longest)>>rand.IntN(53))
	}
	if rand.IntN(3) > 0 {
		p.Factor = 1 + rand.ExpFloat64()*10
	}
	switch kinds := []kind.Kind{kind.Network, "card_declined"}; rand.IntN(3) {
	case 0:
		p.Kinds = kinds
	case 1:
		p.NotKinds = kinds
	}
	return p
}

func TestRetryPolicyJSON(t *testing.T) {
	t.Parallel()
	t.Run("IsText", func(t *testing.T) {
		t.Parallel()
		for want, p := range map[string]RetryPolicy{
			`{}`:               {},
			`{"forever":true}`: {Forever: true},
			`{"max_attempts":5,"backoff":"30s","factor":1.5,"max_backoff":"1 day 2h","no_jitter":true}`: {
				MaxAttempts: 5, Backoff: 30 * time.Second, Factor: 1.5, MaxBackoff: 26 * time.Hour, NoJitter: true,
			},
		} {
			if got, err := json.Marshal(p); err != nil || string(got) != want {
				t.Errorf("%+v: got %s, %v; want %s", p, got, err, want)
			}
		}
	})
	t.Run("RoundTrip", func(t *testing.T) {
		t.Parallel()
		for range 10_000 {
			want := randomPolicy()
			data, err := json.Marshal(&want)
			if err != nil {
				t.Fatal(err)
			}
			var got RetryPolicy
			if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: got %+v, %v; want %+v", data, got, err, want)
			}
		}
	})
	t.Run("UnknownFieldsAndNullAreIgnored", func(t *testing.T) {
		t.Parallel()
		var got RetryPolicy
		err := json.Unmarshal([]byte(`{"max_attempts": 5, "added_later": {"x": 1}, "backoff": null}`), &got)
		if want := (RetryPolicy{MaxAttempts: 5}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	})
	t.Run("FieldsNotMentionedStay", func(t *testing.T) {
		t.Parallel()
		got := RetryPolicy{MaxAttempts: 5, Backoff: time.Second, MaxBackoff: time.Hour, Factor: 3, NoJitter: true}
		want := got
		want.Backoff = time.Minute
		if err := json.Unmarshal([]byte(`{"backoff": "1 minute"}`), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		if err := json.Unmarshal([]byte(`null`), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("after null: got %+v, %v; want %+v", got, err, want)
		}
	})
	t.Run("InAStruct", func(t *testing.T) {
		t.Parallel()
		type config struct {
			Retry RetryPolicy  `json:"retry"`
			Other *RetryPolicy `json:"other"`
		}
		want := config{RetryPolicy{Backoff: time.Second}, &RetryPolicy{Forever: true}}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got config
		if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", data, got, err)
		}
	})
}

func TestRetryPolicyJSONRefuses(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"backoff": 30}`: `kagzi: retry policy: backoff is 30: write it as text with a unit, ` +
			`such as "30s"`,
		`{"max_backoff": 30000000000}`: `kagzi: retry policy: max_backoff is 30000000000: write it as text`,
		`{"backoff": {"seconds": 30}}`: `kagzi: retry policy: backoff is {"seconds": 30}: write it as text`,
		`{"backoff": "30"}`:            `kagzi: retry policy: backoff: duration "30" has a number without a unit`,
		`{"max_backoff": "-1s"}`:       `kagzi: retry policy: max_backoff: duration "-1s" is negative`,
		`{"max_attempts": "5"}`:        `kagzi: retry policy: json: cannot unmarshal string`,
		`[]`:                           `kagzi: retry policy: json: cannot unmarshal array`,
	} {
		got := RetryPolicy{MaxAttempts: 9}
		err := json.Unmarshal([]byte(data), &got)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v; want %s", data, err, want)
		}
		if !reflect.DeepEqual(got, RetryPolicy{MaxAttempts: 9}) {
			t.Errorf("%s: changed the policy to %+v", data, got)
		}
	}
	for _, p := range []RetryPolicy{{Backoff: -1}, {Factor: math.NaN()}, {MaxAttempts: -1}} {
		if data, err := json.Marshal(p); err == nil {
			t.Errorf("%+v: stored as %s", p, data)
		}
	}
}
