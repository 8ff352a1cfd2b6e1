package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Client talks to process 1 of a box through its socket.
type Client struct{ http *http.Client }

// NewClient makes a client; it connects at each request.
func NewClient(socket string) *Client {
	return &Client{http: &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		},
	}}
}

// Start starts the unit, or replaces it if its definition changed.
func (c *Client) Start(ctx context.Context, u Unit) error {
	body, err := json.Marshal(u)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodPut, "/units", body)
	return err
}

// Stop ends the unit and forgets it.
func (c *Client) Stop(ctx context.Context, name string) error {
	_, err := c.do(ctx, http.MethodDelete, "/units/"+name, nil)
	return err
}

// Units lists the units by name.
func (c *Client) Units(ctx context.Context) ([]State, error) {
	body, err := c.do(ctx, http.MethodGet, "/units", nil)
	if err != nil {
		return nil, err
	}
	var states []State
	if err := json.Unmarshal(body, &states); err != nil {
		return nil, fmt.Errorf("box: units: %w", err)
	}
	return states, nil
}

// Shutdown asks the box to end: every process gets SIGTERM, and SIGKILL after
// grace. It returns as soon as the request is taken.
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error {
	_, err := c.do(ctx, http.MethodPost, "/stop?grace="+grace.String(), nil)
	return err
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://box"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("box: its first process does not answer (is the box up?): %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("box: %s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("box: %s", strings.TrimSpace(string(answer)))
	}
	return answer, nil
}
