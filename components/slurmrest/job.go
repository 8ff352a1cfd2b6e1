package slurmrest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

// Job is what messages say of a job.
type Job struct {
	ID, User, Name string
	States         []string
	// Nodes are the nodes that it is allocated to; none while it is pending.
	Nodes []string
}

// OnNodes tells whether a job of this state has nodes.
func (s JobState) OnNodes() bool {
	for _, word := range s.States {
		switch word {
		case "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "SIGNALING", "STAGE_OUT", "STOPPED":
			return true
		}
	}
	return false
}

// Job reads one job's record, about 8 KB of slurmctld's.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	status, body, err := c.call(ctx, http.MethodGet, "/job/"+url.PathEscape(id), nil)
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	job, err := DecodeJob(status, body)
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	job.ID = id
	return job, nil
}

// DecodeJob reads an answer of GET /job/{id}. Of a job that slurmctld has in several records (a heterogeneous one) it takes
// the nodes of all.
func DecodeJob(status int, body []byte) (*Job, error) {
	var raw struct {
		answer
		Jobs []struct {
			User   string   `json:"user_name"`
			Name   string   `json:"name"`
			Nodes  string   `json:"nodes"`
			States []string `json:"job_state"`
		} `json:"jobs"`
	}
	if err := decode(status, body, &raw); err != nil {
		return nil, err
	}
	if err := raw.check(status); err != nil {
		return nil, err
	}
	if len(raw.Jobs) == 0 {
		return nil, errors.New("the answer has no job")
	}
	first := raw.Jobs[0]
	job := &Job{User: first.User, Name: first.Name, States: first.States}
	for _, part := range raw.Jobs {
		if strings.TrimSpace(part.Nodes) == "" {
			continue
		}
		nodes, err := hostlist.Expand(part.Nodes)
		if err != nil {
			return nil, err
		}
		job.Nodes = append(job.Nodes, nodes...)
	}
	return job, nil
}
