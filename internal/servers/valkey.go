package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/valkey-io/valkey-go"
)

const valkeyTitle = "Valkey"

// ValkeyOptions are the settings of a private Valkey server.
type ValkeyOptions struct {
	// Args are arguments of valkey-server beside the package's own:
	// {"--maxmemory", "10mb"}. Default: none.
	Args []string
	// Password is what clients must say. Default: none is asked for.
	Password string
}

// Valkey is a Valkey server. It keeps nothing on disk: a restart empties it.
type Valkey struct {
	server
	addr     string
	password string
}

// Addr is the server's host and port, or what VALKEY_ADDR says.
func (v *Valkey) Addr() string { return v.addr }

// UseValkey returns the server that VALKEY_ADDR names, which stays the user's
// own, or starts a private one.
func UseValkey(ctx context.Context, options ValkeyOptions) (*Valkey, error) {
	if addr := os.Getenv(ValkeyAddr); addr != "" {
		return &Valkey{server: server{title: valkeyTitle}, addr: addr}, nil
	}
	return StartValkey(ctx, options)
}

// StartValkey starts a private Valkey server, or a Redis one where only that is
// installed.
func StartValkey(ctx context.Context, options ValkeyOptions) (*Valkey, error) {
	program, err := valkeyProgram()
	if err != nil {
		return nil, fmt.Errorf("servers: prepare %s: %w", valkeyTitle, err)
	}
	v := &Valkey{server: server{title: valkeyTitle}, password: options.Password}
	if v.folder, err = newFolder("valkey", nil); err != nil {
		return nil, fmt.Errorf("servers: prepare %s: %w", valkeyTitle, err)
	}
	v.launch = launch{program: program, stop: syscall.SIGTERM, ready: v.ready}
	err = onFreePort(func(port int) error {
		v.addr = loopback(port)
		v.launch.args = options.arguments(port, v.folder.path)
		return v.start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, v.folder.remove())
	}
	return v, nil
}

func (o ValkeyOptions) arguments(port int, folder string) []string {
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", folder,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
	if o.Password != "" {
		args = append(args, "--requirepass", o.Password)
	}
	return append(args, o.Args...)
}

// ready asks the server for its process, which tells ours from one that took
// the port before it.
func (v *Valkey) ready(ctx context.Context, pid int) error {
	client, err := valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{v.addr}, Password: v.password,
		ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	info, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", pid)) {
		return errors.New("another server has the port")
	}
	return nil
}
