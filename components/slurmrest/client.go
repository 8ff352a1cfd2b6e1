package slurmrest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/slurmrest/v0042"
)

const (
	// callTimeout bounds one call, connection included: slurmctld may hold its locks for seconds, not for longer.
	callTimeout = 10 * time.Second
	// maxAnswer bounds one answer: 2.5 KB a node, so room for 25,000 nodes.
	maxAnswer = 64 << 20
)

// ErrUnchanged is the answer to Client.Nodes when no node changed since.
var ErrUnchanged = errors.New("no node changed")

// Client calls one slurmrestd. It is safe for concurrent use.
type Client struct {
	base   string
	tokens *TokenSource
	http   *http.Client
}

// New returns a client of the slurmrestd at address: "http://host:port", or "unix:/path" for a socket.
func New(address string, tokens *TokenSource) (*Client, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		address = "http://slurmrestd"
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("slurmrestd's address %q is neither http://host:port nor unix:/path", address)
	}
	return &Client{
		base:   strings.TrimSuffix(base.String(), "/") + "/slurm/" + DataParser,
		tokens: tokens,
		http:   &http.Client{Transport: transport},
	}, nil
}

// Nodes lists all nodes. If since is not zero and no node has changed since then (by slurmctld's clock: NodeList.AsOf of
// an earlier answer) it returns ErrUnchanged, at the cost of an empty answer.
func (c *Client) Nodes(ctx context.Context, since time.Time) (*NodeList, error) {
	path := "/nodes/"
	if !since.IsZero() {
		path += "?update_time=" + strconv.FormatInt(since.Unix(), 10)
	}
	status, body, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, fmt.Errorf("list Slurm's nodes: %w", err)
	}
	if status == http.StatusNotModified && !since.IsZero() {
		return nil, ErrUnchanged
	}
	if status == http.StatusInternalServerError && !since.IsZero() {
		// slurmrestd 24.11 hands update_time to its load of the partitions too, and takes their "no change" for an error
		// ("Unable to query partitions"): nodes have changed, so ask for all of them.
		return c.Nodes(ctx, time.Time{})
	}
	list, err := DecodeNodes(status, body)
	if err != nil {
		return nil, fmt.Errorf("list Slurm's nodes: %w", err)
	}
	return list, nil
}

// UpdateNode gives a node new state words, and a reason where Slurm wants one (Down, Drain). POWER_DOWN_ASAP, Slurm's
// safe scale-in, is PowerDown|PowerDrain.
func (c *Client) UpdateNode(ctx context.Context, name string, state NodeState, reason string) error {
	words := v0042.NodeStates(state.Words())
	update := v0042.UpdateNodeMsg{State: &words}
	if reason != "" {
		update.Reason = &reason
	}
	payload, err := json.Marshal(update)
	if err != nil {
		return fmt.Errorf("encode the update of node %s: %w", name, err)
	}
	status, body, err := c.call(ctx, http.MethodPost, "/node/"+url.PathEscape(name), payload)
	if err == nil {
		err = decodeUpdate(status, body)
	}
	if err != nil {
		return fmt.Errorf("set node %s to %s: %w", name, state, err)
	}
	return nil
}

// Ping returns nil if slurmctld answers through slurmrestd.
func (c *Client) Ping(ctx context.Context) error {
	status, body, err := c.call(ctx, http.MethodGet, "/ping/", nil)
	if err == nil {
		err = DecodePing(status, body)
	}
	if err != nil {
		return fmt.Errorf("ping slurmctld: %w", err)
	}
	return nil
}

// Statistics returns slurmctld's own counts.
func (c *Client) Statistics(ctx context.Context) (*Statistics, error) {
	status, body, err := c.call(ctx, http.MethodGet, "/diag/", nil)
	if err != nil {
		return nil, fmt.Errorf("read slurmctld's statistics: %w", err)
	}
	statistics, err := DecodeStatistics(status, body)
	if err != nil {
		return nil, fmt.Errorf("read slurmctld's statistics: %w", err)
	}
	return statistics, nil
}

// JobStates lists every job's state, about 60 bytes a job. It is no basis for decisions about nodes.
func (c *Client) JobStates(ctx context.Context) ([]JobState, error) {
	status, body, err := c.call(ctx, http.MethodGet, "/jobs/state/", nil)
	if err != nil {
		return nil, fmt.Errorf("list the jobs' states: %w", err)
	}
	states, err := DecodeJobStates(status, body)
	if err != nil {
		return nil, fmt.Errorf("list the jobs' states: %w", err)
	}
	return states, nil
}

// call makes one request; a token that slurmctld refuses is replaced once, because the key may have been rotated.
func (c *Client) call(ctx context.Context, method, path string, payload []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, body, err := c.once(ctx, method, path, payload)
	if err == nil && status == http.StatusUnauthorized {
		c.tokens.Forget()
		status, body, err = c.once(ctx, method, path, payload)
	}
	return status, body, err
}

func (c *Client) once(ctx context.Context, method, path string, payload []byte) (int, []byte, error) {
	token, err := c.tokens.Token()
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(payload))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("X-SLURM-USER-NAME", c.tokens.User)
	request.Header.Set("X-SLURM-USER-TOKEN", token)
	if payload != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxAnswer {
		return 0, nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return response.StatusCode, body, nil
}
