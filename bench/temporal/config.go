package main

import (
	"net"
	"net/url"
	"strconv"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/primitives"
	v12 "go.temporal.io/server/schema/postgresql/v12"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/tools/common/schema"
	"go.temporal.io/server/tools/sql"
)

const (
	// shards is the number of history shards. A shard does one write to the database after the other, so there are more
	// of them than connections. On two processors 64 are faster than 4 and 512.
	shards = 64
	// connections are those of each of the four services for workflows. Another eight are for their visibility.
	connections, visibilityConnections = 32, 8
)

// tuning lifts the limits of requests a second, which would end what is measured. One process serves a task queue, so
// that its partitions would only pass tasks on to each other.
func tuning() dynamicconfig.StaticClient {
	const unlimited = 1_000_000
	t := dynamicconfig.StaticClient{
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
	}
	for _, limit := range []dynamicconfig.GenericSetting{
		dynamicconfig.FrontendRPS, dynamicconfig.FrontendMaxNamespaceRPSPerInstance,
		dynamicconfig.MatchingRPS, dynamicconfig.HistoryRPS,
		dynamicconfig.FrontendPersistenceMaxQPS, dynamicconfig.MatchingPersistenceMaxQPS,
		dynamicconfig.HistoryPersistenceMaxQPS, dynamicconfig.WorkerPersistenceMaxQPS,
	} {
		t[limit.Key()] = unlimited
	}
	return t
}

// readDSN returns a database as Temporal's configuration has it. The DSN's host is the folder of a Unix socket.
func readDSN(dsn string) (config.SQL, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return config.SQL{}, err
	}
	attributes := map[string]string{}
	for name := range u.Query() {
		attributes[name] = u.Query().Get(name)
	}
	return config.SQL{
		PluginName: postgresql.PluginNamePGX, User: u.User.Username(), DatabaseName: u.Path[1:],
		ConnectProtocol: "tcp", ConnectAddr: "localhost", // the attributes have another host
		ConnectAttributes: attributes,
	}, nil
}

// prepare creates the tables of workflows and of their visibility, if migrate is true. Their version is kept under the
// name of the database, and a copy of one has another name. Visibility reads the version of workflows, which is newer
// than its own, and accepts that.
func prepare(database config.SQL, migrate bool, logger log.Logger) error {
	conn, err := sql.NewConnection(&database, logger)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !migrate {
		return conn.UpdateSchemaVersion(v12.Version, v12.Version)
	}
	for _, setup := range []schema.SetupConfig{
		{SchemaName: "postgresql/v12/temporal", InitialVersion: v12.Version},
		{SchemaName: "postgresql/v12/visibility", DisableVersioning: true},
	} {
		if err := schema.NewSetupSchemaTask(conn, &setup, logger).Run(); err != nil {
			return err
		}
	}
	return nil
}

func configuration(database config.SQL, ports map[string]int) *config.Config {
	workflows, visibility := database, database
	workflows.MaxConns, workflows.MaxIdleConns = connections, connections
	visibility.MaxConns, visibility.MaxIdleConns = visibilityConnections, visibilityConnections
	frontend := address(ports[string(primitives.FrontendService)])
	cfg := &config.Config{
		Persistence: config.Persistence{
			DefaultStore: "workflows", VisibilityStore: "visibility", NumHistoryShards: shards,
			DataStores: map[string]config.DataStore{"workflows": {SQL: &workflows}, "visibility": {SQL: &visibility}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: "active", CurrentClusterName: "active",
			ClusterInformation: map[string]cluster.ClusterInformation{
				"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: frontend},
		Services:            map[string]config.Service{},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchival{State: config.ArchivalDisabled},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: config.ArchivalDisabled},
		}},
	}
	for service, port := range ports {
		cfg.Services[service] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnLocalHost: true}}
	}
	return cfg
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// hosts says where the services are, so that they need not look for each other.
func hosts(ports map[string]int) map[primitives.ServiceName]static.Hosts {
	at := map[primitives.ServiceName]static.Hosts{}
	for service, port := range ports {
		at[primitives.ServiceName(service)] = static.SingleLocalHost(address(port))
	}
	return at
}

// freePorts returns a port of localhost for each service.
func freePorts() (map[string]int, error) {
	ports := map[string]int{}
	for _, service := range temporal.DefaultServices {
		l, err := net.Listen("tcp", address(0))
		if err != nil {
			return nil, err
		}
		defer l.Close() // when all ports are known, lest one is found twice
		ports[service] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
