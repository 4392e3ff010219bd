package kagzi

import (
	"encoding/json"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
)

// A payload is what a Codec wrote, for an object with a field for each of its two forms: bytes that are no JSON cannot
// stand in one as they are.
func payload(data json.RawMessage) (text json.RawMessage, bytes []byte) {
	if json.Valid(data) {
		return data, nil
	}
	return nil, data
}

// orBytes is payload back.
func orBytes(text json.RawMessage, bytes []byte) json.RawMessage {
	if bytes != nil {
		return bytes
	}
	return text
}

type (
	runInfoFields  RunInfo
	stepFields     StepAttempt
	scheduleFields ScheduleInfo
)

// A field here comes before the one of the same name in the struct embedded beside it.
type runInfoJSON struct {
	runInfoFields
	Input       json.RawMessage `json:"input,omitempty"`
	InputBytes  []byte          `json:"input_base64,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes []byte          `json:"output_base64,omitempty"`
}

// MarshalJSON writes the run as the comment of RunInfo says.
func (r RunInfo) MarshalJSON() ([]byte, error) {
	out := runInfoJSON{runInfoFields: runInfoFields(r)}
	out.Input, out.InputBytes = payload(r.Input)
	out.Output, out.OutputBytes = payload(r.Output)
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *RunInfo) UnmarshalJSON(data []byte) error {
	var in runInfoJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "run as JSON")
	}
	*r = RunInfo(in.runInfoFields)
	r.Input, r.Output = orBytes(in.Input, in.InputBytes), orBytes(in.Output, in.OutputBytes)
	return nil
}

type stepJSON struct {
	stepFields
	Input       json.RawMessage `json:"input,omitempty"`
	InputBytes  []byte          `json:"input_base64,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes []byte          `json:"output_base64,omitempty"`
}

// MarshalJSON writes the attempt as the comment of RunInfo says.
func (s StepAttempt) MarshalJSON() ([]byte, error) {
	out := stepJSON{stepFields: stepFields(s)}
	out.Input, out.InputBytes = payload(s.Input)
	out.Output, out.OutputBytes = payload(s.Output)
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *StepAttempt) UnmarshalJSON(data []byte) error {
	var in stepJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "step as JSON")
	}
	*s = StepAttempt(in.stepFields)
	s.Input, s.Output = orBytes(in.Input, in.InputBytes), orBytes(in.Output, in.OutputBytes)
	return nil
}

type scheduleJSON struct {
	scheduleFields
	Input      json.RawMessage `json:"input,omitempty"`
	InputBytes []byte          `json:"input_base64,omitempty"`
	Every      string          `json:"every,omitempty"`
	CatchUpAge string          `json:"catch_up_age,omitempty"`
	Jitter     string          `json:"jitter,omitempty"`
}

// MarshalJSON writes the schedule as the comments of ScheduleInfo and RunInfo say.
func (s ScheduleInfo) MarshalJSON() ([]byte, error) {
	out := scheduleJSON{scheduleFields: scheduleFields(s)}
	out.Input, out.InputBytes = payload(s.Input)
	for text, d := range map[*string]time.Duration{&out.Every: s.Every, &out.CatchUpAge: s.CatchUpAge, &out.Jitter: s.Jitter} {
		if d != 0 {
			*text = duration.Format(d)
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *ScheduleInfo) UnmarshalJSON(data []byte) error {
	var in scheduleJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "schedule as JSON")
	}
	out := ScheduleInfo(in.scheduleFields)
	out.Input = orBytes(in.Input, in.InputBytes)
	for d, text := range map[*time.Duration]string{&out.Every: in.Every, &out.CatchUpAge: in.CatchUpAge, &out.Jitter: in.Jitter} {
		if text == "" {
			continue
		}
		var err error
		if *d, err = duration.Parse(text); err != nil {
			return failure.Wrap(err, "schedule as JSON")
		}
	}
	*s = out
	return nil
}
