package fault

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A scope is where a setting of the server is set.
type scope string

const (
	ofServer   scope = "server"   // ALTER SYSTEM: all sessions have it at once
	ofDatabase scope = "database" // ALTER DATABASE: new sessions have it
)

// impose gives a setting a value until lift is called. Several faults may impose the same setting. lift succeeds also
// if ctx has ended.
func (w *World) impose(ctx context.Context, in scope, name, value string) (lift func() error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := string(in) + " " + name
	s := w.settings[key]
	if s == nil {
		s = &wishes{}
		if s.before, err = w.current(ctx, in, name); err != nil {
			return nil, err
		}
	}
	wish := &value
	if err := w.apply(ctx, in, name, wish); err != nil {
		return nil, err
	}
	if w.settings == nil {
		w.settings = map[string]*wishes{}
	}
	s.values = append(s.values, wish)
	w.settings[key] = s
	return func() error {
		ctx, cancel := mending(ctx)
		defer cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		s.values = slices.DeleteFunc(s.values, func(other *string) bool { return other == wish })
		if len(s.values) > 0 {
			return w.apply(ctx, in, name, s.values[len(s.values)-1])
		}
		delete(w.settings, key)
		return w.apply(ctx, in, name, s.before)
	}, nil
}

// current returns what a setting is set to in the scope, nil if it is not set there.
func (w *World) current(ctx context.Context, in scope, name string) (*string, error) {
	const inFile = `SELECT (SELECT setting FROM pg_file_settings WHERE name = $1
		AND sourcefile LIKE '%postgresql.auto.conf' ORDER BY seqno DESC LIMIT 1)`
	const inCatalog = `SELECT (
		SELECT substr(c, length($1) + 2) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase,
			unnest(s.setconfig) c
		WHERE d.datname = current_database() AND s.setrole = 0 AND starts_with(c, $1 || '='))`
	if in == ofServer {
		return ask[*string](ctx, w, inFile, name)
	}
	return ask[*string](ctx, w, inCatalog, name)
}

// apply sets or, if value is nil, resets a setting.
func (w *World) apply(ctx context.Context, in scope, name string, value *string) error {
	return w.with(ctx, func(conn *pgx.Conn) error {
		altered := "SYSTEM"
		if in == ofDatabase {
			altered = "DATABASE " + pgx.Identifier{conn.Config().Database}.Sanitize()
		}
		sql := "ALTER " + altered + " RESET " + name
		if value != nil {
			var literal string
			if err := conn.QueryRow(ctx, "SELECT quote_literal($1)", *value).Scan(&literal); err != nil {
				return err
			}
			sql = "ALTER " + altered + " SET " + name + " = " + literal
		}
		if _, err := conn.Exec(ctx, sql); err != nil || in == ofDatabase {
			return err
		}
		_, err := conn.Exec(ctx, "SELECT pg_reload_conf()")
		return err
	})
}
