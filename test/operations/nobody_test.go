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
		"Delete": func(r kagzi.Ref) error { return admin.New(k.Client).Delete(k.Ctx, r) },
		"Fork":   func(r kagzi.Ref) error { _, err := admin.New(k.Client).Fork(k.Ctx, r, "s"); return err },
		"Get":    func(r kagzi.Ref) error { _, err := k.Client.Get(k.Ctx, r); return err },
		"Messages": func(r kagzi.Ref) error {
			_, err := admin.New(k.Client).Messages(k.Ctx, r, admin.MessageFilter{})
			return err
		},
		"PauseRun":   func(r kagzi.Ref) error { return admin.New(k.Client).PauseRun(k.Ctx, r) },
		"Restart":    func(r kagzi.Ref) error { _, err := admin.New(k.Client).Restart(k.Ctx, r); return err },
		"Resume":     func(r kagzi.Ref) error { return admin.New(k.Client).Resume(k.Ctx, r) },
		"Signal":     func(r kagzi.Ref) error { return k.Client.Signal(k.Ctx, r, mail.With(1)) },
		"Steps":      func(r kagzi.Ref) error { _, err := k.Client.Steps(k.Ctx, r, kagzi.StepFilter{}); return err },
		"Terminate":  func(r kagzi.Ref) error { return admin.New(k.Client).Terminate(k.Ctx, r) },
		"UnpauseRun": func(r kagzi.Ref) error { return admin.New(k.Client).UnpauseRun(k.Ctx, r) },
		"Update":     func(r kagzi.Ref) error { return admin.New(k.Client).Update(k.Ctx, r, kagzi.Priority(1)) },
	} {
		for what, ref := range map[string]kagzi.Ref{"run ID": kagzi.RunID(uuid.NewString()), "ID": kagzi.ID("nobody")} {
			if err := verb(ref); !errors.Is(err, kagzi.ErrNotFound) {
				t.Errorf("%s by %s: %v", name, what, err)
			}
		}
	}
}
