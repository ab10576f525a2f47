package main

import (
	"time"

	"go.temporal.io/server/chasm/lib/activity"
	"go.temporal.io/server/common/dynamicconfig"
)

// unlimited stands for rates that a test must never meet.
const unlimited = 1_000_000

// settings is the dynamic configuration: what a test wants to see at once is
// not cached, nothing is throttled, and what a server has but leaves off, or
// might turn off, is on.
func settings() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		// Features.
		dynamicconfig.EnableChasm.Key():                                          true,
		activity.Enabled.Key():                                                   true,
		activity.StartDelayEnabled.Key():                                         true,
		activity.EnableStandaloneActivityOperatorCommands.Key():                  true,
		dynamicconfig.FrontendEnableBatchOperationsForStandaloneActivities.Key(): true,
		dynamicconfig.FrontendEnableUpdateWorkflowExecution.Key():                true,
		dynamicconfig.FrontendEnableUpdateWorkflowExecutionAsyncAccepted.Key():   true,
		dynamicconfig.EnableActivityEagerExecution.Key():                         true,
		dynamicconfig.EnableEagerWorkflowStart.Key():                             true,
		dynamicconfig.WorkerHeartbeatsEnabled.Key():                              true,

		// Seen at once.
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
		dynamicconfig.NamespaceCacheRefreshInterval.Key():           time.Second,

		// One partition of a task queue: no task waits in one while the only
		// poller asks another.
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,

		// Rates.
		dynamicconfig.FrontendRPS.Key():                                  unlimited,
		dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key():           unlimited,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): unlimited,
		dynamicconfig.FrontendPersistenceMaxQPS.Key():                    unlimited,
		dynamicconfig.HistoryRPS.Key():                                   unlimited,
		dynamicconfig.HistoryPersistenceMaxQPS.Key():                     unlimited,
		dynamicconfig.MatchingRPS.Key():                                  unlimited,
		dynamicconfig.MatchingPersistenceMaxQPS.Key():                    unlimited,
		dynamicconfig.WorkerPersistenceMaxQPS.Key():                      unlimited,
		dynamicconfig.VisibilityPersistenceMaxReadQPS.Key():              unlimited,
		dynamicconfig.VisibilityPersistenceMaxWriteQPS.Key():             unlimited,
		dynamicconfig.SchedulerNamespaceStartWorkflowRPS.Key():           float64(unlimited),

		// How often the only shard's queues look for new tasks: by default 20
		// times a second, which costs a lone workflow 40 ms a task.
		dynamicconfig.TransferProcessorMaxPollRPS.Key():   unlimited,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():      unlimited,
		dynamicconfig.OutboundProcessorMaxPollRPS.Key():   unlimited,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): unlimited,

		// As the Temporal CLI's server.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key(): 8096,
	}
}
