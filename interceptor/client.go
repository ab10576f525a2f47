package interceptor

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
)

// ConfigureClient adds what stamps the standalone activities that the client
// starts, once.
func (p *Plugin) ConfigureClient(_ context.Context, o client.PluginConfigureClientOptions) error {
	for _, i := range o.ClientOptions.Interceptors {
		if c, ok := i.(*clientInterceptor); ok && c.plugin == p {
			return nil
		}
	}
	o.ClientOptions.Interceptors = append(o.ClientOptions.Interceptors, &clientInterceptor{plugin: p})
	return nil
}

type clientInterceptor struct {
	interceptor.ClientInterceptorBase
	plugin *Plugin
}

func (c *clientInterceptor) InterceptClient(next interceptor.ClientOutboundInterceptor) interceptor.ClientOutboundInterceptor {
	return &clientOutbound{interceptor.ClientOutboundInterceptorBase{Next: next}, c.plugin}
}

type clientOutbound struct {
	interceptor.ClientOutboundInterceptorBase
	plugin *Plugin
}

// ExecuteActivity stamps a standalone activity, as a workflow stamps its own:
// what this client's policy says is obeyed by every attempt.
func (c *clientOutbound) ExecuteActivity(ctx context.Context, in *interceptor.ClientExecuteActivityInput) (client.ActivityHandle, error) {
	policy := c.plugin.policy(in.ActivityType)
	id, err := identity{mode: Off}, error(nil)
	if policy.Mode != Off {
		id, _, err = policy.identify(in.ActivityType, declared{}, in.Args)
	}
	if err != nil {
		// The worker may know the decoded input, and reports it if it doesn't.
		return c.Next.ExecuteActivity(ctx, in)
	}
	p, err := newStamp(id).payload()
	if err != nil {
		return nil, fmt.Errorf("interceptor: stamp: %w", err)
	}
	interceptor.Header(ctx)[headerField] = p
	return c.Next.ExecuteActivity(ctx, in)
}
