package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that Linux and macOS hand out for
// outgoing connections: a client that keeps asking a killed server could
// otherwise be given that very port, and bar the restart.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 100
)

// freePort finds a port of the loopback interface that nobody listens on.
// Somebody may take it before its user does: the user tries again with another.
func freePort() (int, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // a port needs no secrecy
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("give a free port back: %w", err)
		}
		return port, nil
	}
	return 0, errors.New("find a free port: none in a hundred tries")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// onFreePort calls start with free ports until its program no longer ends at
// once, as it does when somebody else has taken the port meanwhile.
func onFreePort(start func(port int) error) error {
	var last error
	for range 3 {
		port, err := freePort()
		if err != nil {
			return err
		}
		if last = start(port); !errors.Is(last, errEnded) {
			return last
		}
	}
	return last
}
