package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

const (
	postgresTitle = "PostgreSQL"
	superuser     = "postgres"
)

// PostgresOptions are the settings of a private PostgreSQL server.
type PostgresOptions struct {
	// Settings are configuration parameters beside, or instead of, the
	// package's own: {"max_prepared_transactions": "10"}. Default: none.
	Settings map[string]string
	// Durable keeps fsync and full_page_writes on, as in production. Default:
	// both off, which survives a kill of the server but not of the machine.
	Durable bool
	// Clock is what the server takes for the time. Default: the machine's.
	Clock *Clock
}

// Postgres is a PostgreSQL server.
type Postgres struct {
	server
	url  string
	addr string
}

// URL is the DSN of the server's superuser and its database "postgres", or what
// DATABASE_URL says. It holds a password.
func (p *Postgres) URL() string { return p.url }

// Addr is the server's host and port.
func (p *Postgres) Addr() string { return p.addr }

// UsePostgres returns the server that DATABASE_URL names, which stays the
// user's own, or starts a private one.
func UsePostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	dsn := os.Getenv(DatabaseURL)
	if dsn == "" {
		return StartPostgres(ctx, options)
	}
	config, err := pgx.ParseConfig(dsn) // its error does not hold the password
	if err != nil {
		return nil, fmt.Errorf("servers: read %s: %w", DatabaseURL, err)
	}
	return &Postgres{
		server: server{title: postgresTitle},
		url:    dsn,
		addr:   net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))),
	}, nil
}

// StartPostgres starts a private PostgreSQL server. When the caller is root the
// server runs as the user "postgres", or "nobody" where there is no such user:
// it refuses to run as root.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	p := &Postgres{server: server{title: postgresTitle}}
	password := rand.Text()
	if err := p.prepare(ctx, options, password); err != nil {
		return nil, fmt.Errorf("servers: prepare %s: %w", postgresTitle, err)
	}
	args := p.launch.args
	err := onFreePort(func(port int) error {
		p.addr = loopback(port)
		p.url = (&url.URL{
			Scheme: "postgres", User: url.UserPassword(superuser, password),
			Host: p.addr, Path: "/postgres", RawQuery: "sslmode=disable",
		}).String()
		p.launch.args = append(args[:len(args):len(args)], "-c", "port="+strconv.Itoa(port))
		return p.start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, p.folder.remove())
	}
	return p, nil
}

// prepare makes the server's folder and its cluster.
func (p *Postgres) prepare(ctx context.Context, options PostgresOptions, password string) error {
	programs, err := postgresPrograms()
	if err != nil {
		return err
	}
	user, err := unprivileged()
	if err != nil {
		return err
	}
	if p.folder, err = newFolder("postgres", user); err != nil {
		return err
	}
	p.folder.last = removeSharedMemory
	data := dataFolder(p.folder.path)
	if err := initCluster(ctx, programs.initdb, data, user, password); err != nil {
		return errors.Join(err, p.folder.remove())
	}
	p.launch = launch{
		program: programs.postgres,
		args:    append([]string{"-D", data}, options.arguments(p.folder.path)...),
		clock:   options.Clock,
		user:    user,
		stop:    syscall.SIGQUIT, // at once: the files go as well
		ready:   p.ready,
	}
	return nil
}

// arguments renders the configuration parameters for the command line.
func (o PostgresOptions) arguments(folder string) []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": folder,
		"max_connections":         "200",
		"shared_buffers":          "128MB",
		"synchronous_commit":      "on",
		"fsync":                   onOff(o.Durable),
		"full_page_writes":        onOff(o.Durable),
		// In the data folder, so that nothing outlives a kill elsewhere.
		"dynamic_shared_memory_type": "mmap",
	}
	for name, value := range o.Settings {
		settings[name] = value
	}
	args := make([]string, 0, 2*len(settings))
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// ready connects with the password, which only our own server knows.
func (p *Postgres) ready(ctx context.Context, _ int) error {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func dataFolder(folder string) string { return filepath.Join(folder, "data") }

// initCluster makes an empty cluster whose superuser has the password.
func initCluster(ctx context.Context, initdb, data string, user *syscall.Credential, password string) error {
	secret := data + ".password"
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the password: %w", err)
	}
	defer func() { _ = os.Remove(secret) }()
	if user != nil {
		if err := os.Chown(secret, int(user.Uid), int(user.Gid)); err != nil {
			return fmt.Errorf("hand the password over: %w", err)
		}
	}
	// "password" and not "scram-sha-256": it never leaves the machine, and a
	// test opens connections by the hundred.
	cmd := exec.CommandContext(ctx, initdb, "-D", data, "--username="+superuser, "--pwfile="+secret,
		"--auth=password", "--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.Dir = filepath.Dir(data)
	cmd.SysProcAttr = attributes(user)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, said)
	}
	return nil
}

// removeSharedMemory frees the System V segment that a killed server leaves
// behind: a small one, but systems allow only so many. It does what it can.
func removeSharedMemory(folder string) {
	text, err := os.ReadFile(filepath.Join(dataFolder(folder), "postmaster.pid"))
	if err != nil {
		return // it was stopped, or isn't PostgreSQL's folder
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return
	}
	if fields := strings.Fields(lines[6]); len(fields) == 2 {
		_ = exec.Command("ipcrm", "-m", fields[1]).Run() // a number from our own server's file
	}
}
