// Command starter makes one transfer and waits for its receipt.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"

	"go.temporal.io/sdk/client"

	"github.com/effectonce/effectonce/samples/transfer"
)

func main() {
	c, err := client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS")})
	if err != nil {
		log.Fatalln("Unable to create client:", err)
	}
	defer c.Close()

	t := transfer.Transfer{ID: rand.Text(), From: "alice", To: "bob", Amount: 10}
	options := client.StartWorkflowOptions{ID: "transfer-" + t.ID, TaskQueue: transfer.TaskQueue}
	run, err := c.ExecuteWorkflow(context.Background(), options, transfer.MoneyTransfer, t)
	if err != nil {
		log.Panicln("Unable to execute workflow:", err)
	}
	var receipt transfer.Receipt
	if err := run.Get(context.Background(), &receipt); err != nil {
		log.Panicln("The transfer failed:", err)
	}
	fmt.Printf("moved %d from %s to %s, %d left: entry %d\n", t.Amount, t.From, t.To, receipt.Left, receipt.Entry)
}
