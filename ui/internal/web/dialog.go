package web

import (
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
)

// A Dialog is the view model of a form. One that was shown is constant.
type Dialog struct {
	Title   string
	Run     *kagzi.RunInfo // the run that it is about; nil if it is about something else
	Says    []string       // how the change will go
	Plan    any            // what it would do, if the template shows that
	Warning string         // what the database says would go wrong
	Refused string         // why it cannot be done at all; there is no form then
	Fields  []deeds.Field
	Unasked bool   // it asks for no reason
	Do      string // the text of the button
	Danger  bool   // what it does cannot be undone
	To      string // where the form goes, as a path behind Config.Path
	Back    string // the page of what it is about
	Error   string // of the last try
	Token   string // of the form that failed; empty for a new one
}

// Why is the field of the reason, which every change has.
var Why = deeds.Field{Name: "reason", Label: "Reason", Hint: "why, for those who read the log"}

// Rest says why the page of the form has no stream.
func (v *Dialog) Rest() string { return "Nothing changes until you send the form." }

// Usual are the fields that are not folded.
func (v *Dialog) Usual() []deeds.Field {
	return slices.DeleteFunc(slices.Clone(v.Fields), func(f deeds.Field) bool { return f.Rare })
}

// Rare are the fields that are folded.
func (v *Dialog) Rare() []deeds.Field {
	return slices.DeleteFunc(slices.Clone(v.Fields), func(f deeds.Field) bool { return !f.Rare })
}

// RareSet reports whether one of these has a value.
func (v *Dialog) RareSet() bool {
	return slices.ContainsFunc(v.Fields, func(f deeds.Field) bool { return f.Rare && f.Value != "" })
}

// failed says why the change of the form with the token failed. The token keeps a change that was made nevertheless
// from being made again.
func (v *Dialog) failed(wrong error, token string) {
	v.Refused, v.Token = "", token
	v.Error = Sentence(wrong)
	if v.Run != nil {
		v.Error = WhyNot(wrong, v.Run.ID)
	}
	if Away(wrong) {
		v.Error = "Postgres gave no answer, so it may have been done or not. " + v.Error
	}
}

// Finish adds the reason to the dialog, and the values typed or asked for: the values of a link fill the fields, too.
func (v *Dialog) Finish(q Query, typed bool) {
	if v.To == "" {
		v.To = q.page()
	}
	v.Fields = slices.Clone(v.Fields) // a look may have shared them
	if !v.Unasked {
		v.Fields = append(v.Fields, Why)
	}
	for i := range v.Fields {
		if v.Fields[i].Kind != deeds.Hidden {
			v.Fields[i] = Fill(v.Fields[i], q, typed)
		}
	}
}

// Fill returns the field with the value that was typed, or that a link proposes.
func Fill(f deeds.Field, q Query, typed bool) deeds.Field {
	given, there := q.all(f.Name)
	if !typed && !there {
		return f
	}
	first := ""
	if len(given) > 0 {
		first = given[0]
	}
	switch f.Kind {
	case deeds.Check:
		if f.Value = first; first == "0" {
			f.Value = ""
		}
	case deeds.Several, deeds.Choice:
		f.Choices = slices.Clone(f.Choices)
		known := false
		for i, o := range f.Choices {
			f.Choices[i].On = slices.Contains(given, o.Value)
			known = known || f.Choices[i].On
		}
		// the link of a step beyond those that are listed
		if f.Kind == deeds.Choice && !known && first != "" {
			f.Choices = append(f.Choices, deeds.Option{Value: first, Label: first, On: true})
		}
	default:
		if len(given) > 0 {
			f.Value = first
		}
	}
	return f
}
