// Package egress is the packet filter's witness that nothing in the box dials
// an address outside of it: a counter that matches, before any other rule, each
// packet to an address that is not the box's own, and refuses it. The network
// namespace has no way out anyway (its default route ends in a bridge without ports):
// the counter is there so that a program that tries is found.
package egress

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

const table = "berth_egress"

// Inside lists the networks of a box, besides loopback.
type Inside struct {
	// Node is the node's own address, Pods and Services are CIDRs.
	Node, Pods, Services string
}

// Counter is what the filter counted since the box started.
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Rules is the rule set. The hooks are those that see a packet first, on its
// way from a process of the node (output) or from a pod (prerouting), so that a
// packet that a network policy drops later is counted too.
func Rules(in Inside) string {
	return fmt.Sprintf(`table inet %s {
	set inside {
		type ipv4_addr
		flags interval
		elements = { 127.0.0.0/8, %s, %s, %s }
	}
	counter outside {
		comment "packets to an address outside the box"
	}
	chain judge {
		ip daddr @inside return
		ip6 daddr ::1 return
		counter name outside
	}
	chain output {
		type filter hook output priority -350; policy accept;
		jump judge
	}
	chain prerouting {
		type filter hook prerouting priority -350; policy accept;
		jump judge
	}
	chain refuse_output {
		type filter hook output priority 350; policy accept;
		ip daddr != @inside reject
	}
	chain refuse_forward {
		type filter hook forward priority 350; policy accept;
		ip daddr != @inside reject
	}
}
`, table, in.Node, in.Pods, in.Services)
}

// Setup returns the commands that give a fresh network namespace the node's
// address, a default route that ends in a bridge without ports, and the rules, which
// are read from rulesFile. Without that route a dial would fail before the
// filter could see it.
func Setup(in Inside, rulesFile string) [][]string {
	return [][]string{
		// The box speaks IPv4 only. A bridge with IPv6, or one that listens for
		// multicast, would announce itself to groups of routers.
		{"/bin/sh", "-c", "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done"},
		{"/usr/sbin/ip", "link", "set", "lo", "up"},
		{"/usr/sbin/ip", "link", "add", "node0", "type", "bridge", "mcast_snooping", "0"},
		{"/usr/sbin/ip", "address", "add", in.Node + "/32", "dev", "node0"},
		{"/usr/sbin/ip", "link", "set", "node0", "up"},
		{"/usr/sbin/ip", "route", "add", "default", "dev", "node0", "src", in.Node},
		{"/usr/sbin/nft", "-f", rulesFile},
	}
}

// Read reads the counter of the network namespace of process pid.
func Read(ctx context.Context, pid int) (Counter, error) {
	out, err := exec.CommandContext(ctx, "nsenter", "--target", fmt.Sprint(pid), "--net",
		"/usr/sbin/nft", "--json", "list", "counter", "inet", table, "outside").Output()
	if err != nil {
		return Counter{}, fmt.Errorf("egress: read the counter: %w%s", err, stderr(err))
	}
	return parse(out)
}

func parse(text []byte) (Counter, error) {
	var answer struct {
		Nftables []struct {
			Counter *Counter `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return Counter{}, fmt.Errorf("egress: nft's answer: %w", err)
	}
	for _, item := range answer.Nftables {
		if item.Counter != nil {
			return *item.Counter, nil
		}
	}
	return Counter{}, fmt.Errorf("egress: nft's answer holds no counter: %s", text)
}

// ProofCommand is the hidden argument by which Prove runs this program again.
const ProofCommand = "egress-proof"

// Prove shows that the counter counts: in a network namespace of its own, made
// by the same commands and rules as the box's, one packet is sent to an address
// of the documentation range (RFC 5737), and the counter must go from 0 to 1.
// The packet can't leave: the namespace's only route ends in a bridge without ports.
func Prove(ctx context.Context, self string, in Inside) error {
	arg, err := json.Marshal(in)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, ProofCommand, string(arg))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("egress: the counter does not count: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// ProveHere is what runs in the namespace that Prove made.
func ProveHere(ctx context.Context, arg string) error {
	var in Inside
	if err := json.Unmarshal([]byte(arg), &in); err != nil {
		return fmt.Errorf("egress proof: %w", err)
	}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	if len(links) > 1 && !onlyFallback(links) {
		return fmt.Errorf("egress proof: refused, this network namespace is not a fresh one: it has %d links", len(links))
	}
	rules, err := os.CreateTemp("", "berth-egress-*.nft")
	if err != nil {
		return err
	}
	defer os.Remove(rules.Name())
	if _, err := rules.WriteString(Rules(in)); err != nil {
		return err
	}
	if err := rules.Close(); err != nil {
		return err
	}
	for _, argv := range Setup(in, rules.Name()) {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	for _, step := range []struct {
		to   string
		want uint64
	}{
		{in.Node + ":9", 0},     // the box's own: not counted
		{"198.51.100.1:9", 1},   // outside: counted
		{"127.0.0.1:9", 1},      // loopback: not counted
		{"198.51.100.200:9", 2}, // every one
	} {
		if err := sendOne(step.to); err != nil {
			return err
		}
		c, err := Read(ctx, os.Getpid())
		if err != nil {
			return err
		}
		if c.Packets != step.want {
			return fmt.Errorf("after one packet to %s the counter is at %d, want %d", step.to, c.Packets, step.want)
		}
	}
	return nil
}

// sendOne sends one datagram of one byte.
func sendOne(to string) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	// A refusal comes back as an error of this write or of a later one: either
	// way the packet has passed the counter.
	_, _ = c.Write([]byte{0})
	return nil
}

// onlyFallback tells whether the links are loopback and the kernel's fallback
// tunnel devices (tunl0, sit0, …), which appear down in every new namespace.
func onlyFallback(links []net.Interface) bool {
	for _, l := range links {
		if l.Flags&net.FlagLoopback == 0 && l.Flags&net.FlagUp != 0 {
			return false
		}
	}
	return true
}

func stderr(err error) string {
	if e, ok := err.(*exec.ExitError); ok && len(e.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(e.Stderr))
	}
	return ""
}
