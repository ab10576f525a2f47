package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// tracing sends a process's spans to the collector.
type tracing struct {
	conn     net.Conn
	provider *trace.TracerProvider
}

func newTracing(ctx context.Context, address, process string) (*tracing, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("reach the collector of spans: %w", err)
	}
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(conn)) // a line of JSON each
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &tracing{conn: conn, provider: trace.NewTracerProvider(
		trace.WithSpanProcessor(processor{exporter}),
		trace.WithResource(resource.NewSchemaless(attribute.String(attrProcess, process))),
	)}, nil
}

func (t *tracing) close(ctx context.Context) {
	_ = t.provider.Shutdown(ctx)
	_ = t.conn.Close()
}

// processor sends each span when it begins and again when it ends, and goes on
// when that has been written: nothing is lost when the process is killed.
type processor struct{ exporter trace.SpanExporter }

func (p processor) OnStart(ctx context.Context, s trace.ReadWriteSpan) { p.send(ctx, s) }

func (p processor) OnEnd(s trace.ReadOnlySpan) { p.send(context.Background(), s) }

func (p processor) send(ctx context.Context, s trace.ReadOnlySpan) {
	if err := p.exporter.ExportSpans(context.WithoutCancel(ctx), []trace.ReadOnlySpan{s}); err != nil {
		otel.Handle(err)
	}
}

func (p processor) Shutdown(ctx context.Context) error { return p.exporter.Shutdown(ctx) }

func (processor) ForceFlush(context.Context) error { return nil }

const attrProcess = "service.name"

// span is what the collector reads of a span.
type span struct {
	Name                string
	SpanContext, Parent struct{ TraceID, SpanID string }
	StartTime, EndTime  time.Time // EndTime is zero until it has ended
	Attributes          attributes
	Resource            attributes
}

type attributes []struct {
	Key   attribute.Key
	Value struct{ Value any }
}

// get returns an attribute as text, or "".
func (a attributes) get(key attribute.Key) string {
	for _, pair := range a {
		if pair.Key == key {
			return fmt.Sprint(pair.Value.Value)
		}
	}
	return ""
}

func (s span) ended() bool { return !s.EndTime.IsZero() }

// collector gathers the spans of all processes.
type collector struct {
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	ended *sync.Cond
	open  int             // connections
	spans map[string]span // by ID; the last that was heard of each
	fault error
}

func newCollector(ctx context.Context) (*collector, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("collect spans: %w", err)
	}
	c := &collector{listener: listener, spans: map[string]span{}}
	c.ended = sync.NewCond(&c.mu)
	c.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			c.count(1)
			c.work.Go(func() {
				defer c.count(-1)
				defer func() { _ = conn.Close() }()
				c.read(json.NewDecoder(conn))
			})
		}
	})
	return c, nil
}

func (c *collector) addr() string { return c.listener.Addr().String() }

func (c *collector) count(change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += change
	c.ended.Broadcast()
}

// read goes on until the process has ended, or was killed.
func (c *collector) read(lines *json.Decoder) {
	for {
		var s span
		err := lines.Decode(&s)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		c.mu.Lock()
		if err != nil {
			c.fault = errors.Join(c.fault, fmt.Errorf("read a span: %w", err))
			c.mu.Unlock()
			return
		}
		if !c.spans[s.SpanContext.SpanID].ended() {
			c.spans[s.SpanContext.SpanID] = s
		}
		c.mu.Unlock()
	}
}

// all returns the spans when those who sent them have gone and all is read.
func (c *collector) all() ([]span, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open > 0 {
		c.ended.Wait()
	}
	return slices.Collect(maps.Values(c.spans)), c.fault
}

// close is called when those who send have gone.
func (c *collector) close() {
	_ = c.listener.Close()
	c.work.Wait()
}
