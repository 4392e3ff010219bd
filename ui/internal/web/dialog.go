package web

import (
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
)

// A Dialog is the view model of a form. One that was shown is constant.
type Dialog struct {
	Title   string
	Run     *kagzi.RunInfo // the run that it is about; nil if it is about something else
	Says    []string       // what will happen
	Plan    any            // what it would do, if the template shows that
	Warning string         // what the database says would go wrong
	Refused string         // why it cannot be done at all; there is no form then
	Fields  []Field
	Unasked bool   // it asks for no reason
	Do      string // the text of the button
	Danger  bool   // what it does cannot be undone
	To      string // where the form goes, as a path behind Config.Path
	Back    string // the page of what it is about
	Error   string // of the last try
	Token   string // of the form that failed; empty for a new one
}

// A Field is an input of a form.
type Field struct {
	Name, Label string
	Sort        string // "text", "number", "lines", "json", "check", "select", "several" or "hidden"
	Value       string
	On          bool   // of a check
	Hint        string // an example
	Help        string
	Options     []Option // of select and several; suggestions of text
	Required    bool
	Rare        bool // it is folded, unless it has a value
}

// Rows is how many lines an editor shows.
func (f Field) Rows() int { return min(max(strings.Count(f.Value, "\n")+1, 3), 16) }

// An Option is a value that a field may have.
type Option struct {
	Value, Label string
	On           bool
}

// Rest says why the page of the form has no stream.
func (v *Dialog) Rest() string { return "Nothing changes until you send the form." }

// Usual are the fields that are not folded.
func (v *Dialog) Usual() []Field {
	return slices.DeleteFunc(slices.Clone(v.Fields), func(f Field) bool { return f.Rare })
}

// Rare are the fields that are folded.
func (v *Dialog) Rare() []Field {
	return slices.DeleteFunc(slices.Clone(v.Fields), func(f Field) bool { return !f.Rare })
}

// RareSet reports whether one of these has a value.
func (v *Dialog) RareSet() bool {
	return slices.ContainsFunc(v.Fields, func(f Field) bool { return f.Rare && f.Value != "" })
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

// Finish adds the reason to the dialog, and what was typed or asked for: the values of a link fill the fields, too.
func (v *Dialog) Finish(q Query, typed bool) {
	if v.To == "" {
		v.To = q.page()
	}
	v.Fields = slices.Clone(v.Fields) // a look may have shared them
	if !v.Unasked {
		v.Fields = append(v.Fields, Field{
			Name: "reason", Label: "Reason", Sort: "text",
			Hint: "why, for those who read the log",
		})
	}
	for i := range v.Fields {
		if v.Fields[i].Sort != "hidden" {
			v.Fields[i].Fill(q, typed)
		}
	}
}

// Fill gives the field the value that was typed, or that a link proposes.
func (f *Field) Fill(q Query, typed bool) {
	given, there := q.all(f.Name)
	if !typed && !there {
		return
	}
	switch f.Sort {
	case "check":
		f.On = len(given) > 0 && given[0] != "" && given[0] != "0"
	case "several", "select":
		f.Options = slices.Clone(f.Options)
		known := false
		for i, o := range f.Options {
			f.Options[i].On = slices.Contains(given, o.Value)
			known = known || f.Options[i].On
		}
		// the link of a step beyond those that are listed
		if f.Sort == "select" && !known && len(given) > 0 && given[0] != "" {
			f.Options = append(f.Options, Option{Value: given[0], Label: given[0], On: true})
		}
	default:
		if len(given) > 0 {
			f.Value = given[0]
		}
	}
}
