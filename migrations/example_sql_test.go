package migrations_test

import (
	"fmt"
	"strings"

	"github.com/kagzi/kagzi/migrations"
)

// The script is for those who review changes of a database, and may be who does it.
func ExampleSQL() {
	script, err := migrations.SQL(0, 0) // from an empty database to what this program needs
	fmt.Println(err)
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "CREATE TABLE") {
			fmt.Print(line)
		}
	}
	_, err = migrations.SQL(0, 1_000_000)
	fmt.Println(strings.Contains(err.Error(), "upgrade this program's Kagzi"))
	// Output:
	// <nil>
	// CREATE TABLE kagzi.schema_migrations (
	// CREATE TABLE kagzi.workflow_runs (
	// CREATE TABLE kagzi.step_runs (
	// CREATE TABLE kagzi.signals (
	// CREATE TABLE kagzi.run_events (
	// CREATE TABLE kagzi.audit_log (
	// CREATE TABLE kagzi.start_windows (
	// CREATE TABLE kagzi.start_items (
	// CREATE TABLE kagzi.events (
	// CREATE TABLE kagzi.events_0 PARTITION OF kagzi.events FOR VALUES IN (0);
	// CREATE TABLE kagzi.events_1 PARTITION OF kagzi.events FOR VALUES IN (1);
	// CREATE TABLE kagzi.events_2 PARTITION OF kagzi.events FOR VALUES IN (2);
	// CREATE TABLE kagzi.events_3 PARTITION OF kagzi.events FOR VALUES IN (3);
	// CREATE TABLE kagzi.events_4 PARTITION OF kagzi.events FOR VALUES IN (4);
	// CREATE TABLE kagzi.events_5 PARTITION OF kagzi.events FOR VALUES IN (5);
	// CREATE TABLE kagzi.events_6 PARTITION OF kagzi.events FOR VALUES IN (6);
	// CREATE TABLE kagzi.events_7 PARTITION OF kagzi.events FOR VALUES IN (7);
	// CREATE TABLE kagzi.event_parts (
	// CREATE TABLE kagzi.event_keepers (
	// CREATE TABLE kagzi.event_waits (
	// CREATE TABLE kagzi.awaited_events (
	// CREATE TABLE kagzi.consumers (
	// CREATE TABLE kagzi.subscriptions (
	// CREATE TABLE kagzi.schedules (
	// CREATE TABLE kagzi.queues (
	// CREATE TABLE kagzi.run_keys (
	// CREATE TABLE kagzi.key_changes (
	// CREATE TABLE kagzi.limits (
	// CREATE TABLE kagzi.limit_places (
	// CREATE TABLE kagzi.pauses (
	// CREATE TABLE kagzi.workers (
	// CREATE TABLE kagzi.worker_events (
	// true
}
