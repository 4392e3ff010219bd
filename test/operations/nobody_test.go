package operations_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestVerbsOfARunThatDoesNotExist: each says that there is no such run, by its run ID and by its ID.
func TestVerbsOfARunThatDoesNotExist(t *testing.T) {
	k := kit.New(t)
	mail := kagzi.DefineSignal[int]("mail")
	for name, verb := range map[string]func(kagzi.Ref) error{
		"Cancel": func(r kagzi.Ref) error { return k.Client.Cancel(k.Ctx, r) },
		"Delete": func(r kagzi.Ref) error { return admin.New(k.Client).Runs.Delete(k.Ctx, r) },
		"Fork":   func(r kagzi.Ref) error { _, err := admin.New(k.Client).Runs.Fork(k.Ctx, r, "s"); return err },
		"Get":    func(r kagzi.Ref) error { _, err := k.Client.Get(k.Ctx, r); return err },
		"Messages": func(r kagzi.Ref) error {
			_, err := admin.New(k.Client).Messages.List(k.Ctx, r, admin.MessageFilter{})
			return err
		},
		"Runs.Pause":   func(r kagzi.Ref) error { return admin.New(k.Client).Runs.Pause(k.Ctx, r) },
		"Restart":      func(r kagzi.Ref) error { _, err := admin.New(k.Client).Runs.Restart(k.Ctx, r); return err },
		"Resume":       func(r kagzi.Ref) error { return admin.New(k.Client).Runs.Resume(k.Ctx, r) },
		"Signal":       func(r kagzi.Ref) error { return k.Client.Signal(k.Ctx, r, mail.With(1)) },
		"Steps":        func(r kagzi.Ref) error { _, err := k.Client.Steps(k.Ctx, r, kagzi.StepFilter{}); return err },
		"Terminate":    func(r kagzi.Ref) error { return admin.New(k.Client).Runs.Terminate(k.Ctx, r) },
		"Runs.Unpause": func(r kagzi.Ref) error { return admin.New(k.Client).Runs.Unpause(k.Ctx, r) },
		"Update":       func(r kagzi.Ref) error { return admin.New(k.Client).Runs.Update(k.Ctx, r, kagzi.Priority(1)) },
	} {
		for what, ref := range map[string]kagzi.Ref{"run ID": kagzi.RunID(uuid.NewString()), "ID": kagzi.ID("nobody")} {
			if err := verb(ref); !errors.Is(err, kagzi.ErrNotFound) {
				t.Errorf("%s by %s: %v", name, what, err)
			}
		}
	}
}
