// Command starter pays one order and waits for its receipt.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"

	"go.temporal.io/sdk/client"

	"github.com/effectonce/effectonce/samples/payment"
)

func main() {
	c, err := client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS")})
	if err != nil {
		log.Fatalln("Unable to create client:", err)
	}
	defer c.Close()

	o := payment.Order{ID: rand.Text(), Card: "4242", Amount: 1999}
	options := client.StartWorkflowOptions{ID: "payment-" + o.ID, TaskQueue: payment.TaskQueue}
	run, err := c.ExecuteWorkflow(context.Background(), options, payment.Pay, o)
	if err != nil {
		log.Panicln("Unable to execute workflow:", err)
	}
	var receipt payment.Receipt
	if err := run.Get(context.Background(), &receipt); err != nil {
		log.Panicln("The payment failed:", err)
	}
	fmt.Printf("paid %d cents: %s\n", o.Amount, receipt.Charge)
}
