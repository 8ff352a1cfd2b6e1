package placement

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/service"
)

const (
	// answerTimeout bounds one question to an advisor elsewhere.
	answerTimeout = 10 * time.Second
	// maxAnswer bounds what it answers; an answer has a few hundred bytes.
	maxAnswer = 64 << 10
)

// Remote is an advisor elsewhere, by its HTTP interface.
type Remote struct {
	base, token string
	http        *http.Client
}

// NewRemote makes one of an address, http://host:port or unix:/path, and a bearer token ("" for a socket).
func NewRemote(address, token string) (*Remote, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}
	base := address
	if path, is := strings.CutPrefix(address, "unix:"); is {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		base = "http://advisor"
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the advisor's address %q is neither http://host:port nor unix:/path", address)
	}
	return &Remote{base: strings.TrimSuffix(u.String(), "/"), token: token, http: &http.Client{Transport: transport, Timeout: answerTimeout}}, nil
}

// Health asks GET /healthz.
func (r *Remote) Health(ctx context.Context) (h service.Health, err error) {
	err = r.call(ctx, http.MethodGet, "/healthz", nil, &h)
	return h, err
}

// Act asks POST /act.
func (r *Remote) Act(ctx context.Context, jobs []service.Job, nodes []string) (p service.Placement, err error) {
	p = service.Placement{Job: -1, Node: -1, Card: -1}
	err = r.call(ctx, http.MethodPost, "/act", map[string]any{"jobs": jobs, "nodes": nodes}, &p)
	return p, err
}

func (r *Remote) call(ctx context.Context, method, path string, question, answer any) error {
	var body io.Reader
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return fmt.Errorf("ask the advisor: %w", err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return fmt.Errorf("ask the advisor: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	response, err := r.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the advisor: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("ask the advisor: %w", err)
	case len(text) > maxAnswer:
		return fmt.Errorf("the advisor's answer to %s is longer than %d bytes", path, maxAnswer)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the advisor answers %s to %s: %s", response.Status, path, short(strings.TrimSpace(string(text))))
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("the advisor's answer to %s is not what its interface promises: %w", path, err)
	}
	return nil
}
