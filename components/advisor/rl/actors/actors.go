// Package actors connects one learner with actors elsewhere, over gRPC: steps of one Slurm allocation, or any processes that share a
// folder. The learner leaves its addresses, its certificate and a secret in the folder; whoever can read that may take part.
//
// There is one call, Exchange: an actor gives a stretch of an episode and gets the newest policy. Messages are safetensors files, as
// all that the learner writes.
package actors

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/berth-hpc/berth/components/advisor/rl"
)

const (
	method     = "/berth.advisor.Learner/Exchange"
	serverName = "learner"
	maxMessage = 64 << 20
)

// raw is the codec: messages are bytes already.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a message is %T", v)
	}
	return *b, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message is %T", v)
	}
	*b = append([]byte{}, data...)
	return nil
}

func (raw) Name() string { return "safetensors" }

// meeting is what learner.json holds.
type meeting struct {
	Addresses   []string `json:"addresses"`
	Certificate string   `json:"certificate"`
	Secret      string   `json:"secret"`
}

func meetingPath(dir string) string { return filepath.Join(dir, "learner.json") }

// exchanger is the service.
type exchanger interface {
	exchange(context.Context, []byte) ([]byte, error)
}

var service = grpc.ServiceDesc{
	ServiceName: "berth.advisor.Learner",
	HandlerType: (*exchanger)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Exchange", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := decode(&in); err != nil {
			return nil, err
		}
		out, err := srv.(exchanger).exchange(ctx, in)
		return &out, err
	}}},
}

// Policy is what actors are to act with.
type Policy struct {
	Version int64
	Params  []float32
	// Random says to act at random, as in warm-up.
	Random bool
}

// Learner is the learner's end.
type Learner struct {
	dir, settings, secret string
	server                *grpc.Server
	queue                 chan *rl.Stretch

	mu      sync.Mutex
	policy  Policy
	episode uint64
	over    bool
	last    map[string]int64 // sequence numbers taken
	left    map[string]bool  // actors that were told it is over
}

// Listen opens a training for actors. Actors must have been started with the same settings, which a digest tells. episode is the first
// to give out.
func Listen(dir, address, settings string, episode uint64) (*Learner, error) {
	// One stretch may wait; the makers of others wait with theirs, so that none grows old in a queue.
	l := &Learner{dir: dir, settings: settings, queue: make(chan *rl.Stretch, 1), last: map[string]int64{}, left: map[string]bool{}, episode: episode}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	l.secret = hex.EncodeToString(secret)
	cert, text, err := certificate()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for actors: %w", err)
	}
	l.server = grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})))
	l.server.RegisterService(&service, l)
	go func() { _ = l.server.Serve(listener) }()
	m := meeting{Addresses: addresses(listener.Addr().(*net.TCPAddr)), Certificate: text, Secret: l.secret}
	b, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = renameio.WriteFile(meetingPath(dir), append(b, '\n'), 0o600)
	}
	if err != nil {
		l.server.Stop()
		return nil, fmt.Errorf("cannot tell actors where the learner is: %w", err)
	}
	return l, nil
}

// addresses under which a listener may be reached, its own host's loopback last.
func addresses(a *net.TCPAddr) []string {
	port := strconv.Itoa(a.Port)
	if !a.IP.IsUnspecified() {
		return []string{net.JoinHostPort(a.IP.String(), port)}
	}
	var out []string
	all, _ := net.InterfaceAddrs()
	for _, i := range all {
		if n, ok := i.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			out = append(out, net.JoinHostPort(n.IP.String(), port))
		}
	}
	return append(out, net.JoinHostPort("127.0.0.1", port))
}

// certificate makes a key that lives as long as the process.
func certificate() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

// Publish replaces the policy. The parameters are the learner's to keep.
func (l *Learner) Publish(p Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.policy = p
}

// Episode is the next to be given out.
func (l *Learner) Episode() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.episode
}

// Next waits for a stretch; nil when the context ends.
func (l *Learner) Next(ctx context.Context) *rl.Stretch {
	select {
	case s := <-l.queue:
		return s
	case <-ctx.Done():
		return nil
	}
}

// Actors is how many have taken part.
func (l *Learner) Actors() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.last)
}

// Close tells the actors that it is over, waits a moment for them to ask, and stops.
func (l *Learner) Close(wait time.Duration) {
	_ = os.Remove(meetingPath(l.dir))
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select { // whoever waits for room in the queue
		case <-l.queue:
		default:
		}
		l.mu.Lock()
		all := len(l.left) == len(l.last)
		l.mu.Unlock()
		if all {
			break
		}
	}
	l.server.Stop()
}

func (l *Learner) exchange(ctx context.Context, in []byte) ([]byte, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get("secret"); len(got) != 1 || subtle.ConstantTimeCompare([]byte(got[0]), []byte(l.secret)) != 1 {
		return nil, status.Error(codes.Unauthenticated, "the secret is not this training's; read learner.json again")
	}
	s, meta, err := rl.DecodeStretch(in)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if meta["settings"] != l.settings {
		return nil, status.Error(codes.FailedPrecondition, "the actor was started with other settings than the learner; give both the same flags")
	}
	l.mu.Lock()
	fresh := s.Steps() > 0 && s.Sequence > l.last[s.Actor] && !l.over
	l.last[s.Actor] = max(l.last[s.Actor], s.Sequence)
	l.mu.Unlock()
	if fresh { // what is asked again because an answer was lost is not taken twice
		select {
		case l.queue <- s:
		case <-ctx.Done():
			l.mu.Lock()
			l.last[s.Actor] = s.Sequence - 1
			l.mu.Unlock()
			return nil, ctx.Err()
		}
	}
	return l.answer(s, meta["version"])
}

// answer is the newest policy, its numbers left out where the actor has them, and an episode if it wants one.
func (l *Learner) answer(s *rl.Stretch, has string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := map[string]string{"version": strconv.FormatInt(l.policy.Version, 10)}
	if l.policy.Random {
		a["random"] = "1"
	}
	if l.over {
		a["over"] = "1"
		l.left[s.Actor] = true
	}
	if s.Over || s.Steps() == 0 {
		a["episode"] = strconv.FormatUint(l.episode, 10)
		l.episode++
	}
	if has == a["version"] || l.over {
		return rl.EncodeTensors(a, nil)
	}
	return rl.EncodeTensors(a, []rl.Tensor{{Name: "actor", Shape: []int{len(l.policy.Params)}, Float: l.policy.Params}})
}

// Act lets an actor take part in the training of a folder until that is over, or the context ends. It waits for a learner, and
// for one that comes back, as long as patience says.
func Act(ctx context.Context, dir, settings string, a *rl.Actor, steps int, patience time.Duration) (made int64, err error) {
	var c *connection
	defer func() { c.close() }()
	s := &rl.Stretch{Actor: a.Name, Row: 1} // the first only asks
	seen := time.Now()
	for {
		in, err := s.Encode(map[string]string{"settings": settings, "version": strconv.FormatInt(a.Version(), 10)})
		if err != nil {
			return made, err
		}
		var out []byte
		for {
			if c == nil {
				c, err = connect(dir)
			}
			if err == nil {
				if out, err = c.exchange(ctx, in); err == nil {
					break
				}
			}
			if ctx.Err() != nil {
				return made, ctx.Err()
			}
			if code := status.Code(err); code == codes.FailedPrecondition || code == codes.InvalidArgument {
				return made, errors.New(status.Convert(err).Message())
			}
			c.close()
			c = nil
			if time.Since(seen) > patience {
				return made, fmt.Errorf("there has been no learner in %s for %s: %w", dir, patience, err)
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return made, ctx.Err()
			}
		}
		seen = time.Now()
		made += int64(s.Steps())
		meta, ts, err := rl.DecodeTensors(out)
		if err != nil {
			return made, fmt.Errorf("the learner's answer: %w", err)
		}
		if meta["over"] != "" {
			return made, nil
		}
		if p, ok := ts["actor"]; ok {
			v, err := strconv.ParseInt(meta["version"], 10, 64)
			if err == nil {
				err = a.SetPolicy(v, p.Float)
			}
			if err != nil {
				return made, err
			}
		}
		if e, ok := meta["episode"]; ok {
			n, err := strconv.ParseUint(e, 10, 64)
			if err != nil {
				return made, fmt.Errorf("the learner's answer names episode %q", e)
			}
			begun, err := a.Begin(n)
			if err != nil {
				return made, err
			}
			if !begun { // nothing to decide in it
				s = &rl.Stretch{Actor: a.Name, Row: 1}
				continue
			}
		}
		if s, err = a.Stretch(steps, meta["random"] != ""); err != nil {
			return made, err
		}
	}
}

// connection is to a learner.
type connection struct {
	conns  []*grpc.ClientConn
	secret string
}

func connect(dir string) (*connection, error) {
	b, err := os.ReadFile(meetingPath(dir))
	if err != nil {
		return nil, err
	}
	var m meeting
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", meetingPath(dir), err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(m.Certificate)) {
		return nil, fmt.Errorf("%s holds no certificate", meetingPath(dir))
	}
	c := &connection{secret: m.Secret}
	for _, a := range m.Addresses {
		conn, err := grpc.NewClient("passthrough:///"+a, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: serverName, MinVersion: tls.VersionTLS13})),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// exchange asks at the address that answers first in order, and stays with it.
func (c *connection) exchange(ctx context.Context, in []byte) (out []byte, err error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "secret", c.secret)
	err = errors.New("learner.json names no address")
	for i, conn := range c.conns {
		try, cancel := context.WithTimeout(ctx, time.Minute)
		err = conn.Invoke(try, method, &in, &out)
		cancel()
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
			c.conns[0], c.conns[i] = c.conns[i], c.conns[0]
			return out, err
		}
	}
	return nil, err
}

func (c *connection) close() {
	if c == nil {
		return
	}
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}
