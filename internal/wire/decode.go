package wire

// burst is what a client sends before it waits for an answer.
type burst struct {
	units   []unit
	answers int  // ends of answers to come, besides those of the units
	flush   bool // asks for an answer that no ReadyForQuery ends
	quiet   bool // is no round trip by itself
	more    bool // came in one piece with the burst before
	data    []byte
}

// unit is one statement or command of a burst.
type unit struct {
	at, end int // its bytes in the burst, from its Parse or Bind on
	sql     string
	command string
	args    [][]byte
	setUp   bool
	answers int
}

// mark is a place in what a server sends that means something.
type mark struct {
	at, end int
	answers bool   // to one unit
	tag     []byte // the answer's tag
	code    []byte // the error's code
	ready   bool   // ends the answers to a burst
	key     []byte // what a CancelRequest for this connection will carry
	copyIn  bool   // the client is to send data: a Sync that it has sent already is passed over
}

// clientDecoder reads bursts. It returns 0 when it needs more bytes, and is
// called with the same bytes, and more, again. With last, no more will come.
type clientDecoder interface {
	next(buf []byte, last bool) (burst, int)
}

// serverDecoder reads the marks in all the whole messages of buf.
type serverDecoder interface {
	next(buf []byte) ([]mark, int)
}

// rawClient and rawServer forward bytes as they are.
type rawClient struct{}

func (rawClient) next(buf []byte, _ bool) (burst, int) { return burst{quiet: true}, len(buf) }

type rawServer struct{}

func (rawServer) next(buf []byte) ([]mark, int) { return nil, len(buf) }

func decoders(p Protocol) (clientDecoder, serverDecoder) {
	switch p {
	case Postgres:
		return &postgresClient{sql: map[string]string{}, portals: map[string]string{}}, &postgresServer{}
	case RESP:
		return &respClient{}, &respServer{}
	default:
		return rawClient{}, rawServer{}
	}
}
