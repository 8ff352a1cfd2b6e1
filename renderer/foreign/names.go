package foreign

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

const (
	defaultPods = "10.42.0.0/16" // the schema's
	// Addresses and the range for hosts of which the source says none: RFC 5737's, which nobody has, and RFC 2544's where these
	// 254 are too few.
	exampleLAN  = "192.0.2.0/24"
	exampleWide = "198.18.0.0/15"
)

var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

// label makes a name that Kubernetes takes, at most n characters long; "" if nothing is left.
func label(name string, n int) string {
	name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(name) > n {
		name = strings.Trim(name[:n], "-")
	}
	return name
}

// poolName makes a name of a pool, which starts with a letter and is not "default".
func poolName(name string) string {
	name = label(name, 40)
	if name == "" || name == "default" || name[0] < 'a' {
		name = strings.Trim("pool-"+name, "-")
	}
	return name
}

var notInCluster = regexp.MustCompile(`[^a-z0-9_-]+`)

func clusterName(name string) string {
	name = strings.TrimLeft(notInCluster.ReplaceAllString(strings.ToLower(name), "-"), "-_0123456789")
	return name[:min(len(name), 40)]
}

// free is the name, or the name with a number behind it that is not taken.
func free[V any](name string, taken map[string]V) string {
	for n := 2; ; n++ {
		if _, is := taken[name]; !is {
			return name
		}
		name = strings.TrimRight(name, "0123456789") + strconv.Itoa(n)
	}
}

// addresses gives hosts without an address one, and the site the range of all.
func (d *Draft) addresses() {
	var known []netip.Addr
	missing := 0
	for _, h := range d.hosts {
		if a, err := netip.ParseAddr(h.address); err == nil && a.Is4() {
			known = append(known, a)
		} else {
			missing++
		}
	}
	if missing == 0 {
		lan := smallestRange(known)
		d.lan = lan.String()
		d.assume("network.lan", "the smallest range that holds the hosts' addresses")
		for _, pods := range []string{defaultPods, "172.28.0.0/14", "100.64.0.0/10"} {
			if !netip.MustParsePrefix(pods).Overlaps(lan) {
				if pods != defaultPods {
					d.pods = pods
					d.assume("network.pods", "the default range overlaps the hosts' addresses")
				}
				return
			}
		}
		return
	}
	lan, err := netip.ParsePrefix(d.lan)
	if err != nil || !lan.Addr().Is4() || lan.Masked() != lan || lan.Bits() > 24 || len(d.hosts) > 200 {
		if lan = netip.MustParsePrefix(exampleLAN); len(d.hosts) > 200 {
			lan = netip.MustParsePrefix(exampleWide)
		}
	}
	d.lan = lan.String()
	next := lan.Addr().Next()
	for range 9 { // the first ten stay free, for the file server too
		next = next.Next()
	}
	for _, name := range sorted(d.hosts) {
		d.hosts[name].address = next.String()
		next = next.Next()
	}
	d.assume("hosts", fmt.Sprintf("the addresses of %d hosts, and network.lan, if these are nobody's", len(d.hosts)))
}

// smallestRange holds all addresses, neither as its first nor as its last, and is a /24 or larger.
func smallestRange(addresses []netip.Addr) netip.Prefix {
	for bits := 24; bits > 8; bits-- {
		p, _ := addresses[0].Prefix(bits)
		whole := true
		for _, a := range addresses {
			whole = whole && p.Contains(a) && a != p.Addr() && a != lastOf(p)
		}
		if whole {
			return p
		}
	}
	p, _ := addresses[0].Prefix(8)
	return p
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b)
}

var bracket = regexp.MustCompile(`^([^\[\]]*)\[([0-9,-]+)\](.*)$`)

// maxHosts bounds a host list, so that a slip of the pen does not make a million hosts.
const maxHosts = 20_000

// expand gives the names of a Slurm host list: n1, n[1-3,7], rack[1-2]n[01-16].
func expand(list string) ([]string, error) {
	var out []string
	for _, part := range splitList(list) {
		names, err := expandOne(part)
		if err != nil {
			return nil, err
		}
		if out = append(out, names...); len(out) > maxHosts {
			return nil, fmt.Errorf("%q names more than %d nodes", list, maxHosts)
		}
	}
	return out, nil
}

// splitList splits at commas outside of brackets.
func splitList(list string) []string {
	var parts []string
	depth, start := 0, 0
	for i, r := range list {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, list[start:i])
			start = i + 1
		}
	}
	return append(parts, list[start:])
}

func expandOne(part string) ([]string, error) {
	m := bracket.FindStringSubmatch(part)
	if m == nil {
		if part == "" || strings.ContainsAny(part, "[]") {
			return nil, fmt.Errorf("%q is not a host list", part)
		}
		return []string{part}, nil
	}
	tails, err := []string{""}, error(nil)
	if m[3] != "" {
		if tails, err = expandOne(m[3]); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, span := range strings.Split(m[2], ",") {
		from, to, isRange := strings.Cut(span, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || b < a || (b-a+1)*len(tails) > maxHosts {
			return nil, fmt.Errorf("%q is not a range of node numbers", span)
		}
		for i := a; i <= b; i++ {
			for _, tail := range tails {
				out = append(out, fmt.Sprintf("%s%0*d%s", m[1], len(from), i, tail))
			}
		}
	}
	return out, nil
}
