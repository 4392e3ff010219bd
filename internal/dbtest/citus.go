package dbtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// LooksLikeCitus gives the connections of a pool the setting by which Kagzi notices Citus. Those of a cluster have it.
func LooksLikeCitus(c *pgxpool.Config) {
	if !OnCitus() {
		c.ConnConfig.RuntimeParams["citus.version"] = "13.2-1"
	}
}

// PretendCitus makes the test's database look as though Citus were installed, as far as Kagzi depends on it: its
// extension is listed, and its functions exist. They distribute nothing. They record each call in the table
// citus_calls, and write the same rows to Citus's own tables as the real functions. They refuse a call for its
// arguments or its user if the real ones do.
func PretendCitus(t testing.TB, db *DB) {
	t.Helper()
	NotOnCitus(t, "the test only pretends that there is Citus")
	conn := Connect(t, db.DSN)
	if _, err := conn.PgConn().Exec(t.Context(), pretendCitus).ReadAll(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
}

const pretendCitus = `
SET allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
VALUES (99999, 'citus', 10, 'pg_catalog'::regnamespace, false, '13.2-1');

CREATE TABLE public.citus_calls (n serial PRIMARY KEY, call text NOT NULL);
GRANT INSERT, SELECT ON public.citus_calls TO PUBLIC;
GRANT USAGE ON SEQUENCE public.citus_calls_n_seq TO PUBLIC;

CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass PRIMARY KEY, partmethod "char" NOT NULL, partkey text,
	colocationid integer NOT NULL, repmodel "char" NOT NULL);
CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass NOT NULL, shardid bigint PRIMARY KEY);
CREATE TABLE pg_catalog.pg_dist_node (nodeid integer PRIMARY KEY, nodename text NOT NULL, nodeport integer NOT NULL);
INSERT INTO pg_dist_node VALUES (1, 'coordinator', 5432), (2, 'node', 5433);
GRANT SELECT ON pg_dist_partition, pg_dist_shard, pg_dist_node TO PUBLIC;

CREATE FUNCTION pg_catalog.column_to_column_name(table_name regclass, column_var_text text) RETURNS text LANGUAGE sql
	AS 'SELECT column_var_text';

CREATE FUNCTION public.citus_called(relation regclass, call text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = relation), 'USAGE') THEN
		RAISE insufficient_privilege USING MESSAGE = 'must be owner of table ' || (SELECT relname FROM pg_class
			WHERE oid = relation);
	END IF;
	INSERT INTO public.citus_calls (call) VALUES (call);
END $$;

CREATE FUNCTION pg_catalog.create_distributed_table(table_name regclass, distribution_column text,
	distribution_type text DEFAULT 'hash',
	colocate_with text DEFAULT 'default', shard_count int DEFAULT NULL) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
		AS $$
DECLARE
	colocation int;
BEGIN
	PERFORM public.citus_called(table_name, format('create_distributed_table(%s, %s, colocate_with => %s)', table_name,
		distribution_column, colocate_with));
	IF EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = table_name) THEN
		RAISE 'table "%" is already distributed', table_name;
	END IF;
	IF colocate_with IN ('none', 'default') THEN
		SELECT coalesce(max(colocationid), 0) + 1 INTO colocation FROM pg_dist_partition;
	ELSE
		SELECT colocationid INTO STRICT colocation FROM pg_dist_partition WHERE logicalrelid = colocate_with::regclass;
	END IF;
	INSERT INTO pg_dist_partition VALUES (table_name, 'h', distribution_column, colocation, 's');
END $$;

CREATE FUNCTION pg_catalog.create_reference_table(table_name regclass) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
	AS $$
BEGIN
	PERFORM public.citus_called(table_name, format('create_reference_table(%s)', table_name));
	IF EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = table_name) THEN
		RAISE 'table "%" is already distributed', table_name;
	END IF;
	INSERT INTO pg_dist_partition VALUES (table_name, 'n', NULL, 1000, 't');
END $$;

-- The rows are lost, because there are no shards that have them.
CREATE FUNCTION pg_catalog.truncate_local_data_after_distributing_table(function_name regclass) RETURNS void LANGUAGE
	plpgsql SECURITY DEFINER AS $$
BEGIN
	PERFORM public.citus_called(function_name, format('truncate_local_data_after_distributing_table(%s)',
		function_name));
	IF NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = function_name) THEN
		RAISE 'supplied parameter is not a distributed relation';
	END IF;
	EXECUTE format('TRUNCATE TABLE %s', function_name);
END $$;

-- Every node gives this server's answer.
CREATE FUNCTION pg_catalog.run_command_on_all_nodes(command text, parallel boolean DEFAULT true,
	give_warning_for_connection_errors boolean DEFAULT false,
	OUT nodeid integer, OUT success boolean, OUT result text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	FOR nodeid IN SELECT n.nodeid FROM pg_dist_node n ORDER BY 1 LOOP
		BEGIN
			EXECUTE command INTO result;
			success := true;
		EXCEPTION WHEN OTHERS THEN
			success := false;
			result := SQLERRM;
		END;
		RETURN NEXT;
	END LOOP;
END $$;
`
