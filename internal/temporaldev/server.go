package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const (
	clusterName = "active"
	store       = "sqlite"
	disabled    = "disabled"
)

// ports are where the services listen; nobody but the server itself needs to
// know any but the frontend's.
type ports map[primitives.ServiceName]int

// newServer makes a server, its schema and its namespace.
func newServer(o options) (temporal.Server, error) {
	database, err := newDatabase(o)
	if err != nil {
		return nil, err
	}
	services, err := newPorts(o.port)
	if err != nil {
		return nil, err
	}
	hosts := make(map[primitives.ServiceName]static.Hosts, len(services))
	for service, port := range services {
		hosts[service] = static.SingleLocalHost(address(port))
	}
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: o.logLevel}))
	server, err := temporal.NewServer(
		temporal.WithConfig(newConfig(database, services)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
		temporal.WithDynamicConfigClient(settings()),
	)
	if err != nil {
		return nil, fmt.Errorf("make the server: %w", err)
	}
	return server, nil
}

// newDatabase names the database and sees to its schema and namespace.
func newDatabase(o options) (*config.SQL, error) {
	database := &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      uuid.NewString(),
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
	}
	if o.dbFile != "" {
		database.DatabaseName = o.dbFile
		database.ConnectAttributes = map[string]string{
			"mode": "rwc", "journal_mode": "wal", "synchronous": "normal",
		}
		_, err := os.Stat(o.dbFile)
		if errors.Is(err, fs.ErrNotExist) {
			err = sqlite.SetupSchema(database)
		}
		if err != nil {
			return nil, fmt.Errorf("prepare the database file: %w", err)
		}
	}
	namespace, err := sqlite.NewNamespaceConfig(clusterName, o.namespace, false, nil)
	if err != nil {
		return nil, fmt.Errorf("describe namespace %q: %w", o.namespace, err)
	}
	if err := sqlite.CreateNamespaces(database, namespace); err != nil {
		return nil, fmt.Errorf("make namespace %q: %w", o.namespace, err)
	}
	return database, nil
}

func newConfig(database *config.SQL, services ports) *config.Config {
	frontend := address(services[primitives.FrontendService])
	c := &config.Config{
		Persistence: config.Persistence{
			DefaultStore:     store,
			VisibilityStore:  store,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{store: {SQL: database}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled:                true,
				InitialFailoverVersion: 1,
				RPCAddress:             frontend,
				ClusterID:              uuid.NewString(),
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: frontend},
		Services:            make(map[string]config.Service, len(services)),
	}
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = loopback
	c.Archival.History.State = disabled
	c.Archival.Visibility.State = disabled
	c.NamespaceDefaults.Archival.History.State = disabled
	c.NamespaceDefaults.Archival.Visibility.State = disabled
	for service, port := range services {
		c.Services[string(service)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback}}
	}
	return c
}

// newPorts gives the frontend its port and finds free ones for the others.
func newPorts(frontend int) (ports, error) {
	found := ports{primitives.FrontendService: frontend}
	for _, service := range []primitives.ServiceName{
		primitives.HistoryService, primitives.MatchingService, primitives.WorkerService,
	} {
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(0)))
		if err != nil {
			return nil, fmt.Errorf("find a port for the %s service: %w", service, err)
		}
		// Held until all are found, lest two services be given the same.
		defer func() { _ = listener.Close() }()
		found[service] = listener.Addr().(*net.TCPAddr).Port
	}
	return found, nil
}
