package service

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

// Bounds of requests.
const (
	maxDecide   = 16 << 10
	maxAct      = 1 << 20
	maxActJobs  = 1024
	maxSnapshot = 256 << 20
)

//go:embed openapi.json
var openAPI []byte

// Token derives the service's bearer token from a secret that all its callers have, so that a site needs no secret more.
func Token(secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("berth advisor token 1"))
	return hex.EncodeToString(mac.Sum(nil))
}

// Handler serves the HTTP interface. With a token, /decide, /act and /snapshot want it; without, whoever can connect is trusted
// (a unix socket, whose file's mode says who can).
func (s *Service) Handler(token string) http.Handler {
	mux := http.NewServeMux()
	guarded := func(pattern string, limit int64, h func(http.ResponseWriter, *http.Request, []byte, time.Time)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			started := s.now()
			if token != "" && !authorized(r, token) {
				s.refuse(w, http.StatusUnauthorized, "the bearer token is missing or wrong")
				return
			}
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
			var tooLong *http.MaxBytesError
			switch {
			case errors.As(err, &tooLong):
				s.refuse(w, http.StatusRequestEntityTooLarge, "the request is longer than "+strconv.FormatInt(limit, 10)+" bytes")
			case err != nil:
				s.refuse(w, http.StatusBadRequest, "the request broke off")
			default:
				h(w, r, body, started)
			}
		})
	}
	guarded("POST /decide", maxDecide, s.decide)
	guarded("POST /act", maxAct, s.act)
	guarded("POST /snapshot", maxSnapshot, s.snapshot)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { s.write(w, http.StatusOK, s.Health()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := s.Ready(); why != "" {
			s.refuse(w, http.StatusServiceUnavailable, why)
			return
		}
		s.write(w, http.StatusOK, map[string]string{"status": "ready"})
	})
	mux.Handle("GET /metrics", s.exposition())
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI)
	})
	return mux
}

func (s *Service) exposition() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Metrics serves GET /metrics and nothing else, for a listener that a scraper without the token reaches.
func (s *Service) Metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.exposition())
	return mux
}

func authorized(r *http.Request, token string) bool {
	given, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return is && subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1
}

func (s *Service) decide(w http.ResponseWriter, _ *http.Request, body []byte, started time.Time) {
	var j Job
	if err := json.Unmarshal(body, &j); err != nil {
		s.refuse(w, http.StatusBadRequest, "not a job: "+err.Error())
		return
	}
	text := s.Decide(&j, started).append(make([]byte, 0, 256))
	w.Header()["Content-Type"] = jsonType
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(text))}
	_, _ = w.Write(text)
}

var jsonType = []string{"application/json"}

// append writes the answer as one flat JSON object of plain strings and decimal numbers, which is all that job_submit.lua reads.
func (a Answer) append(b []byte) []byte {
	b = append(b, `{"boost":`...)
	b = strconv.AppendInt(b, int64(a.Boost), 10)
	b = append(b, `,"advice":`...)
	b = strconv.AppendInt(b, int64(a.Advice), 10)
	b = append(b, `,"value":`...)
	b = strconv.AppendFloat(b, a.Value, 'f', 6, 64)
	b = append(append(append(b, `,"mode":"`...), a.Mode...), '"')
	b = append(append(append(b, `,"checkpoint":"`...), a.Checkpoint...), '"')
	if a.Abstain != "" {
		b = append(append(append(b, `,"abstain":"`...), a.Abstain...), '"')
	}
	return append(b, '}')
}

func (s *Service) act(w http.ResponseWriter, _ *http.Request, body []byte, started time.Time) {
	var request struct {
		Jobs  []Job    `json:"jobs"`
		Nodes []string `json:"nodes"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		s.refuse(w, http.StatusBadRequest, "not a list of jobs: "+err.Error())
		return
	}
	if len(request.Jobs) > maxActJobs {
		s.refuse(w, http.StatusBadRequest, "more than "+strconv.Itoa(maxActJobs)+" jobs at once")
		return
	}
	s.write(w, http.StatusOK, s.Act(request.Jobs, request.Nodes, started))
}

func (s *Service) snapshot(w http.ResponseWriter, _ *http.Request, body []byte, _ time.Time) {
	var d snapshot.Delta
	if err := json.Unmarshal(body, &d); err != nil {
		s.refuse(w, http.StatusBadRequest, "not a snapshot: "+err.Error())
		return
	}
	switch err := s.Snapshot(&d); {
	case errors.Is(err, snapshot.ErrBase):
		s.refuse(w, http.StatusConflict, err.Error())
	case err != nil:
		s.refuse(w, http.StatusBadRequest, err.Error())
	default:
		s.write(w, http.StatusOK, map[string]uint64{"version": d.Version})
	}
}

func (s *Service) write(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer can't be written"}`)
		s.log.Error("an answer can't be written", "why", err.Error())
	}
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

func (s *Service) refuse(w http.ResponseWriter, status int, why string) {
	if status != http.StatusServiceUnavailable {
		s.metrics.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	}
	s.write(w, status, map[string]string{"error": why})
}

// Server is an http.Server with bounds: nobody holds a connection without using it.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 60 * time.Second, MaxHeaderBytes: 8 << 10,
	}
}
