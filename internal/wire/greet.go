package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What a PostgreSQL client can open a connection with instead of a version.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// hello is how a client has opened its connection.
type hello struct {
	data   []byte
	app    string
	cancel bool
	key    string // of the connection to cancel
}

// greet reads up to the StartupMessage of a PostgreSQL client and declines
// encryption.
func (s *session) greet() (hello, error) {
	if s.proxy.protocol != Postgres {
		return hello{}, nil
	}
	for {
		data := make([]byte, 8)
		if _, err := io.ReadFull(s.client, data); err != nil {
			return hello{}, fmt.Errorf("wire: read the startup: %w", err)
		}
		size, code := int(binary.BigEndian.Uint32(data)), binary.BigEndian.Uint32(data[4:])
		if size < 8 || size > 10000 { // PostgreSQL's own limit
			return hello{}, errors.New("wire: read the startup: not PostgreSQL's protocol")
		}
		if code == sslRequest || code == gssRequest {
			if _, err := s.client.Write([]byte{'N'}); err != nil {
				return hello{}, fmt.Errorf("wire: decline encryption: %w", err)
			}
			continue
		}
		data = append(data, make([]byte, size-8)...)
		if _, err := io.ReadFull(s.client, data[8:]); err != nil {
			return hello{}, fmt.Errorf("wire: read the startup: %w", err)
		}
		if code == cancelRequest {
			return hello{data: data, cancel: true, key: string(data[8:])}, nil
		}
		return hello{data: data, app: parameter(data[8:], "application_name")}, nil
	}
}

// parameter finds a parameter of a StartupMessage.
func parameter(body []byte, name string) string {
	parts := bytes.Split(body, []byte{0})
	for i := 0; i+1 < len(parts); i += 2 {
		if string(parts[i]) == name {
			return string(parts[i+1])
		}
	}
	return ""
}
