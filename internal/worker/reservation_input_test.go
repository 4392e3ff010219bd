package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/store"
)

// A rawCodec passes bytes on as they are.
type rawCodec struct{}

func (rawCodec) Encode(v any) ([]byte, error) { return v.([]byte), nil }

func (rawCodec) Decode(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

// TestInputOfAStartInPlaceIsItsOwn starts a run in place with a codec that does not copy. The caller changes its input
// after the start, and the run changes its own: neither sees that of the other.
func TestInputOfAStartInPlaceIsItsOwn(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	p := &placing{t: t, db: db, c: kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{Codec: rawCodec{}})}
	cfg := kit.RareHeartbeats
	cfg.PollInterval, cfg.NoCoordinator = 10*time.Minute, true
	p.w = kit.NewWorker(t, p.c, cfg)
	echo, changed := kagzi.Define[[]byte, []byte]("echo"), make(chan struct{})
	kagzi.Handle(p.w, echo, func(_ kagzi.Context, in []byte) ([]byte, error) {
		await.Opened(t, changed)
		out := slices.Clone(in)
		clear(in)
		return out, nil
	})
	p.begin()
	in := []byte("before")
	run, err := kagzi.Start(t.Context(), p.c, echo, in)
	if err != nil {
		t.Fatal(err)
	}
	copy(in, "after!")
	close(changed)
	if out, err := run.Result(t.Context()); string(out) != "before" || err != nil {
		t.Errorf("the run was given %q, %v", out, err)
	}
	if string(in) != "after!" {
		t.Errorf("the caller's input is %q", in)
	}
	if got := dbtest.QueryOne[string](t, db.Pool, `SELECT new_status FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND operation = 'INSERT'`); got != store.Running {
		t.Errorf("INVALID: inserted as %s", got)
	}
}
