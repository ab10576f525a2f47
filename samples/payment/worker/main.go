// Command worker runs the sample's workflow and activity.
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/valkey-io/valkey-go"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/samples/payment"
)

func main() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatalln("Unable to read DATABASE_URL:", err)
	}
	defer pool.Close()

	plugin, err := interceptor.NewPlugin(interceptor.Options{
		Pool:     pool,
		Gate:     &gate.Config{Valkey: valkey.ClientOption{InitAddress: []string{os.Getenv("VALKEY_ADDR")}}},
		Policies: map[string]interceptor.Policy{"Charge": {Mode: interceptor.Leased}},
	})
	if err != nil {
		log.Panicln("Unable to make the plugin:", err)
	}

	c, err := client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS"), Plugins: []client.Plugin{plugin}})
	if err != nil {
		log.Panicln("Unable to create client:", err)
	}
	defer c.Close()

	w := worker.New(c, payment.TaskQueue, worker.Options{})
	w.RegisterWorkflow(payment.Pay)
	w.RegisterActivity(&payment.Payments{URL: "http://" + os.Getenv("PAYMENT_ADDR")})
	if err := w.Run(worker.InterruptCh()); err != nil {
		log.Panicln("Unable to run worker:", err)
	}
}
