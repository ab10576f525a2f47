package main

import (
	"bytes"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCommandFindsServersThatStopAfterIt(t *testing.T) { //nolint:paralleltest // the environment is the whole process's
	// Ours, whatever the test's own environment says.
	for _, name := range []string{"DATABASE_URL", "VALKEY_ADDR", "TEMPORAL_ADDRESS"} {
		t.Setenv(name, "")
	}
	var out bytes.Buffer
	code, err := run(t.Context(), []string{"sh", "-c", "cat; echo $DATABASE_URL $VALKEY_ADDR $TEMPORAL_ADDRESS; exit 7"},
		strings.NewReader("said to it "), &out, &out)
	require.NoError(t, err)
	assert.Equal(t, 7, code)
	said := strings.Fields(strings.TrimPrefix(out.String(), "said to it "))
	require.Len(t, said, 3, out.String())
	postgres, err := url.Parse(said[0])
	require.NoError(t, err)
	for _, address := range []string{postgres.Host, said[1], said[2]} {
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err, "its server is gone")
		require.NoError(t, listener.Close())
	}
}

func TestServersOfOthersAreUsed(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://theirs/db")
	t.Setenv("VALKEY_ADDR", "theirs:6379")
	t.Setenv("TEMPORAL_ADDRESS", "theirs:7233")
	var out bytes.Buffer
	code, err := run(t.Context(), []string{"sh", "-c", "echo $DATABASE_URL $VALKEY_ADDR $TEMPORAL_ADDRESS"}, nil, &out, &out)
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "postgres://theirs/db theirs:6379 theirs:7233\n", out.String())
}

func TestFailuresAreTold(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://theirs/db")
	t.Setenv("VALKEY_ADDR", "theirs:6379")
	t.Setenv("TEMPORAL_ADDRESS", "theirs:7233")
	_, err := run(t.Context(), []string{"/no/such/program"}, nil, nil, nil)
	require.ErrorContains(t, err, "/no/such/program")
	code, err := run(t.Context(), []string{"sh", "-c", "kill -9 $$"}, nil, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, code, "a command that a signal ended has failed")
	t.Setenv("DATABASE_URL", "postgres://theirs:port/db")
	_, err = run(t.Context(), []string{"true"}, nil, nil, nil)
	require.ErrorContains(t, err, "DATABASE_URL")
}
