package cli_test

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/namespaces"
)

// Every command that changes something takes an actor and a reason, and kagzi audit lists them.
func TestAudit(t *testing.T) {
	k, s := newShell(t)
	s.run("audit").ok().says("Nobody has changed anything that matches.")
	kit.Begin(k, approve, 1, kagzi.ID("order-42"))
	for _, command := range []string{
		"queues set shop --max-running 5", "keys set acme --queue shop --max-running 2",
		"limits set api --max-running 3", "limits delete api",
		"pause --queue shop", "unpause --queue shop", "runs signal order-42 approved", "runs cancel order-42",
	} {
		s.run(command+" --actor ada --reason", "because").ok()
	}
	s.run("audit").ok().prints("ACTION", "UPDATED", "queue shop", "max_running none → 5", "key acme of queue shop",
		"limit api", "SIGNALLED", "run order-42", "because")
	s.run("audit --kind key --actor ada").ok().prints("key acme of queue shop").omits("order-42")
	s.run("audit --name order-42 --action cancelled").ok().prints("CANCELLED").omits("SIGNALLED")
	s.run("audit --actor bob").ok().says("Nobody has changed anything that matches.")
	if all := jsonOf[[]admin.AuditEntry](s.run("audit --json --limit 3 --since 1h").ok()); len(all) != 3 ||
		all[0].Action != "CANCELLED" || all[0].Actor != "ada" {
		t.Errorf("the entries are %+v", all)
	}
	s.run("audit --kind thing").exits(2).says("--kind is")
	s.run("queues set shop --reason why").exits(2).says("there is nothing to set")
}

func TestNamespaces(t *testing.T) {
	k, s := newShell(t)
	s.run("namespaces").ok().says("No namespace has runs")
	kit.Begin(k, approve, 1)
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "acme"})
	if _, err := kagzi.Start(t.Context(), other, approve, 1); err != nil {
		t.Fatal(err)
	}
	s.run("namespaces").ok().prints("NAMESPACE", "acme", "default")
	all := jsonOf[[]struct{ Namespace string }](s.run("namespaces --json").ok())
	if len(all) != 2 || all[0].Namespace != "acme" || all[1].Namespace != "default" {
		t.Errorf("%+v", all)
	}
}

func TestMoveNamespace(t *testing.T) {
	k, s := newShell(t, dbtest.AsOwner())
	other := dbtest.Database(t, dbtest.AsOwner())
	s.env["KAGZI_TO_DATABASE_URL"] = other.DSN
	id := kit.Begin(k, approve, 1)
	s.run("namespaces move").exits(2).says("--yes")
	s.run("namespaces move --yes --to nonsense").exits(2).says("the database in --to cannot be read")
	s.run("namespaces move --cancel --yes").ok().prints("Namespace default goes on.")
	s.run("namespaces move --yes").ok().prints("Moved namespace default: ", " rows; it was away for ")
	s.run("namespaces").ok().says("No namespace has runs")
	s.run("namespaces --database-url " + other.DSN).ok().prints("default")
	s.run("runs get " + string(id.ID()) + " --database-url " + other.DSN).ok().prints("approve")
	delete(s.env, "KAGZI_TO_DATABASE_URL")
	s.run("namespaces move --yes").exits(2).says("no second database is given")
	back := jsonOf[struct {
		Namespace string
		namespaces.Moved
	}](s.run("namespaces move --yes --json --database-url " + other.DSN + " --to " +
		s.env["KAGZI_DATABASE_URL"]).ok())
	if back.Namespace != "default" || back.Rows == 0 || back.Away == 0 {
		t.Errorf("%+v", back)
	}
}
