package command

import (
	"cmp"
	"os"
	"os/user"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
)

// A Cause is the flags that say who makes a change, and why.
type Cause struct{ Reason, Actor string }

// Flags adds the flags to a command.
func (s *Cause) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Reason, "reason", "", "`TEXT` for the log that says why")
	fs.StringVar(&s.Actor, "actor", cmp.Or(os.Getenv("KAGZI_ACTOR"), User()), "`NAME` for the log of who does it; "+
		"default: KAGZI_ACTOR, or the user's name")
}

// User returns the name of the user who runs this program.
func User() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// Options returns the reason and the actor as options.
func (s *Cause) Options() []kagzi.ChangeOption {
	return []kagzi.ChangeOption{kagzi.Reason(s.Reason), kagzi.Actor(s.Actor)}
}
