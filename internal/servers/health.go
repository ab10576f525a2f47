package servers

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// askHealth asks a gRPC server whether a service serves: one message of one
// field each way, written by hand so that tests of the ledger do not compile
// gRPC and everything under it.
func askHealth(ctx context.Context, address, service string) error {
	const (
		field   = 0x0a       // HealthCheckRequest.service, a string
		serving = "\x08\x01" // HealthCheckResponse.status = SERVING
		path    = "/grpc.health.v1.Health/Check"
		status  = "Grpc-Status"
	)
	message := append([]byte{field, byte(len(service))}, service...)        //nolint:gosec // a constant's length
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) //nolint:gosec // a constant's length
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path,
		bytes.NewReader(append(frame, message...)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")

	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	code := response.Header.Get(status) + response.Trailer.Get(status)
	if code != "0" || !bytes.HasSuffix(body, []byte(serving)) {
		return fmt.Errorf("the server does not serve yet: gRPC status %q", code)
	}
	return nil
}
