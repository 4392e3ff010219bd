package ui

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A doctorPage is about the database.
type doctorPage struct {
	pool  *pgxpool.Pool
	cache *web.Cache
}

// pages are that page.
func (p *doctorPage) pages() []web.Page {
	return []web.Page{{
		Path: "/doctor", Action: asks(View, OnDoctor), Template: "doctor",
		Live: []string{"examination"}, Look: p.doctor,
		Parts: []web.Part{{Name: "examination", Every: examineEvery, Look: p.examine}},
	}}
}

const (
	// examineEvery is how long an examination is shown before another one is made.
	examineEvery = time.Minute
	// examineTimeout bounds an examination, which takes longer than a look: it waits for a notification, for example.
	examineTimeout = 30 * time.Second
	// examinationKey is the key of the examination in the cache, whatever the page's address.
	examinationKey = "the doctor's examination"
)

// A doctorView is the view model of that page.
type doctorView struct {
	NoPool bool
	Done   bool // the examination is there, and new
}

// Settled reports that the page does not change: an open tab does not examine the database again and again.
func (v doctorView) Settled() bool { return v.NoPool || v.Done }

// Rest says why the page has no stream.
func (v doctorView) Rest() string { return "An examination is not repeated by itself." }

// An examination is what the doctor has found.
type examination struct {
	At    time.Time
	Took  time.Duration
	Wrong string // why there is none
	Sorts []adviceSort
	Count int
}

// An adviceSort are the findings of a severity.
type adviceSort struct {
	Severity    doctor.Severity
	Tone, Title string
	Found       []doctor.Advice
}

func (p *doctorPage) doctor(context.Context, web.Query) (any, error) {
	done, _ := p.cache.Peek(examinationKey).View.(examination)
	return doctorView{NoPool: p.pool == nil, Done: done.Wrong == "" && time.Since(done.At) < examineEvery}, nil
}

// examine examines the database, once a minute for all browsers.
func (p *doctorPage) examine(ctx context.Context, _ web.Query) (any, error) {
	if p.pool == nil {
		return nil, nil
	}
	ctx = context.WithoutCancel(ctx) // a look's deadline is too short
	f := p.cache.Get(ctx, examinationKey, examineEvery, func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), examineTimeout)
		defer cancel()
		began := time.Now()
		found, err := doctor.Examine(ctx, p.pool)
		if err != nil {
			return nil, err
		}
		return examinationOf(found, began), nil
	})
	if f.Err != nil {
		return examination{Wrong: web.Sentence(f.Err)}, nil
	}
	return f.View, nil
}

func examinationOf(found []doctor.Advice, began time.Time) examination {
	e := examination{At: time.Now(), Took: time.Since(began), Count: len(found)}
	for _, s := range []adviceSort{
		{Severity: doctor.Problem, Tone: "failed", Title: "Problem"},
		{Severity: doctor.Warning, Tone: "warning", Title: "Warning"},
		{Severity: doctor.Unseen, Tone: "pending", Title: "Not examined"},
		{Severity: doctor.Fine, Tone: "completed", Title: "Fine"},
	} {
		for _, a := range found {
			if a.Severity == s.Severity {
				s.Found = append(s.Found, a)
			}
		}
		if s.Found != nil {
			e.Sorts = append(e.Sorts, s)
		}
	}
	return e
}

// Title sums the findings up.
func (e examination) Title() string {
	for _, s := range e.Sorts {
		switch s.Severity {
		case doctor.Problem:
			return plural(len(s.Found), "problem") + " found"
		case doctor.Warning:
			return plural(len(s.Found), "warning")
		}
	}
	return "Nothing to do"
}

// Health is the class of the bar that says how the database is.
func (e examination) Health() string {
	if len(e.Sorts) > 0 {
		switch e.Sorts[0].Severity {
		case doctor.Problem:
			return "unhealthy"
		case doctor.Warning:
			return "degraded"
		}
	}
	return "healthy"
}
