package placement

import (
	"context"
	"time"

	"github.com/berth-hpc/berth/components/advisor/service"
)

// InProcess is a service as an advisor, without HTTP between.
type InProcess struct{ Service *service.Service }

// Health asks the service.
func (p InProcess) Health(context.Context) (service.Health, error) { return p.Service.Health(), nil }

// Act asks the service.
func (p InProcess) Act(_ context.Context, jobs []service.Job, nodes []string) (service.Placement, error) {
	return p.Service.Act(jobs, nodes, time.Now()), nil
}
