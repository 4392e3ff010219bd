package cli_test

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/cli"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A hexCodec writes something else than JSON.
type hexCodec struct{}

func (hexCodec) Encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	return append([]byte("#"), data...), err
}

func (hexCodec) Decode(data []byte, v any) error { return json.Unmarshal(data[1:], v) }

// A command line with the Codec and the Sealer of the workers sends what they read.
func TestMainWithCodecAndSealer(t *testing.T) {
	db := dbtest.Database(t)
	k := &kit.Kit{
		T: t, Ctx: kit.Context(t), Pool: db.Pool,
		Client: kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{Codec: hexCodec{}, Sealer: sealer{}}),
	}
	wf, approved := kagzi.Define[int, string]("approve"), kagzi.DefineSignal[string]("approved")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) { return kagzi.WaitSignal(ctx, approved) })
	t.Setenv("KAGZI_DATABASE_URL", db.DSN)
	out := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { os.Stdout = out }()
	os.Stdout = w
	main := func(args ...string) {
		t.Helper()
		os.Args = append([]string{"shop-admin"}, args...)
		if code := cli.Main(cli.Config{Codec: hexCodec{}, Sealer: sealer{}}); code != 0 {
			t.Errorf("%v ends with %d", args, code)
		}
	}
	main("runs", "start", "approve", "--id", "x", "--input", "7")
	main("runs", "signal", "x", "approved", "--payload", `"yes"`)
	main("runs", "wait", "x")
	w.Close()
	if printed, err := io.ReadAll(r); err != nil || !strings.Contains(string(printed), `yes`) {
		t.Errorf("it prints %s, %v", printed, err)
	}
	if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, kagzi.ID("x"))); got != "yes" {
		t.Errorf("the run got %q", got)
	}
}
