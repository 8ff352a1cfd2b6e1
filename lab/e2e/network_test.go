package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// How long a connection may take before it counts as not let through. Inside one machine an open one takes a
// millisecond; refused packets are dropped or rejected.
const dialPatience = 1500 * time.Millisecond

// A network is what the tests of network policies measure: one pod of every role (two workers, because workers talk with
// each other), and a stranger in a namespace of its own.
type network struct {
	*run
	table  flowTable
	srun   portRange
	ports  []int
	places map[string]place // by role; "worker2" is the second worker
	dns    place
}

const stranger = "stranger"

// newNetwork starts two workers and the stranger and opens every port of every pod.
func newNetwork(r *run) *network {
	r.Helper()
	table, err := readFlows(r.box.Source)
	if err != nil {
		r.Fatal(err)
	}
	n := &network{run: r, table: table, places: map[string]place{}, srun: r.srunRange()}
	if n.ports, err = table.allPorts(n.srun); err != nil {
		r.Fatal(err)
	}
	r.waitJob(r.submit(student, "--partition=cpu --nodes=2", "sleep 1200"), "RUNNING", workerStarts)

	for _, role := range table.roles() {
		namespace := platform
		if table.Roles[role].Namespace == "workers" {
			namespace = workers
		}
		var serving []pod
		for _, p := range r.pods(namespace, labelRole+"="+role) {
			if p.serving() {
				serving = append(serving, p)
			}
		}
		if len(serving) == 0 {
			r.Fatalf("no pod of role %s serves", role)
		}
		n.places[role] = r.placeOf(role, serving[0])
		if role == "worker" {
			if len(serving) < 2 {
				r.Fatalf("want two workers, have %s", names(serving))
			}
			n.places["worker2"] = r.placeOf("worker2", serving[1])
		}
	}
	n.places[stranger] = r.strangerPod()
	for _, p := range r.pods("kube-system", "k8s-app=kube-dns") {
		n.dns = r.placeOf("dns", p)
	}
	for _, p := range n.places {
		stop, err := p.listen(n.ports)
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(stop)
	}
	return n
}

// srunRange reads the ports of srun and salloc from the configuration in force.
func (r *run) srunRange() portRange {
	r.Helper()
	var s portRange
	value := r.configValue("SrunPortRange")
	if _, err := fmt.Sscanf(value, "%d-%d", &s.first, &s.last); err != nil {
		r.Fatalf("SrunPortRange %q: %v", value, err)
	}
	return s
}

// strangerPod is a pod of a namespace that has nothing to do with the site.
func (r *run) strangerPod() place {
	r.Helper()
	const namespace = "e2e-stranger"
	image := r.kubectl("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[0].spec.containers[0].image}")
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"List","items":[
	{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%[1]q}},
	{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[2]q,"namespace":%[1]q},"spec":{
		"terminationGracePeriodSeconds":0,"automountServiceAccountToken":false,"enableServiceLinks":false,
		"containers":[{"name":"pause","image":%[3]q,"imagePullPolicy":"Never"}]}}]}`, namespace, stranger, strings.Replace(image, "/dns:", "/pause:", 1))
	if err := r.box.Apply(r.ctx, manifest); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		ctx, cancel := aftermath()
		defer cancel()
		if _, err := r.box.Kubectl(ctx, "delete", "namespace", namespace, "--wait=false"); err != nil {
			r.Errorf("remove the stranger: %v", err)
		}
	})
	var p pod
	r.eventually(60*time.Second, "the stranger runs", func() (bool, string) {
		if err := r.get(&p, "pod", "-n", namespace, stranger); err != nil {
			return false, err.Error()
		}
		return p.serving(), names([]pod{p})
	})
	return r.placeOf(stranger, p)
}

// pair is a row of the matrix: everything between two roles, or a role and the stranger.
type pair struct{ from, to string }

func (p pair) String() string { return p.from + "-to-" + p.to }

// pairs lists the rows that can be measured: a pod does not pass through its policies to itself.
func (n *network) pairs() []pair {
	everybody := append(n.table.roles(), stranger)
	var all []pair
	for _, from := range everybody {
		for _, to := range everybody {
			if from != to || from == "worker" {
				all = append(all, pair{from, to})
			}
		}
	}
	return all
}

// declared lists the ports that the table opens for the pair.
func (n *network) declared(p pair) []int {
	open, err := n.table.open(p.from, p.to, n.ports, n.srun)
	if err != nil {
		n.Fatal(err)
	}
	return open
}

// measure connects from one side of each pair to the other on the given ports, all at once, and returns those that
// came about, in order.
func (n *network) measure(ports map[pair][]int) map[pair][]int {
	open := map[pair][]int{}
	var guard sync.Mutex
	var wait sync.WaitGroup
	slots := make(chan struct{}, 128)
	for p, list := range ports {
		from, to := n.places[p.from], n.places[p.to]
		if p.from == p.to {
			to = n.places[p.to+"2"]
		}
		for _, port := range list {
			wait.Add(1)
			slots <- struct{}{}
			go func() {
				defer wait.Done()
				defer func() { <-slots }()
				if from.reaches(n.ctx, to.address, port, dialPatience) {
					guard.Lock()
					open[p] = append(open[p], port)
					guard.Unlock()
				}
			}()
		}
	}
	wait.Wait()
	for _, list := range open {
		slices.Sort(list)
	}
	return open
}

// The table of flows is the truth: what connects is what it declares, for every role, every role and every port.
func TestNetworkFlows(t *testing.T) {
	r := begin(t, 10*time.Minute)
	n := newNetwork(r)
	every := map[pair][]int{}
	for _, p := range n.pairs() {
		every[p] = n.ports
	}
	measured := n.measure(every)
	for _, p := range n.pairs() {
		t.Run(p.String(), func(t *testing.T) {
			if got, want := fmt.Sprint(measured[p]), fmt.Sprint(n.declared(p)); got != want {
				t.Errorf("open are the ports %s, the table says %s (of %v)", got, want, n.ports)
			}
		})
	}
	for _, w := range n.world() {
		t.Run(w.String(), func(t *testing.T) {
			want := n.table.outside(w.from, w.to)
			if got := n.places[w.from].reaches(r.ctx, w.address, w.port, dialPatience); got != want {
				t.Errorf("a connection to %s:%d comes about: %t, the table says %t", w.address, w.port, got, want)
			}
		})
	}
}

// beyond is a connection from a role to something that is no role.
type beyond struct {
	pair
	address string
	port    int
}

// world lists what is beyond the roles and can be measured in the box: names and the API server, by their pods' or
// hosts' addresses and by their services'.
func (n *network) world() []beyond {
	n.Helper()
	service := func(namespace, name string) string {
		return n.kubectl("get", "service", "-n", namespace, name, "-o", "jsonpath={.spec.clusterIP}")
	}
	api := n.kubectl("get", "endpointslices", "-n", "default", "-l", "kubernetes.io/service-name=kubernetes", "-o", "jsonpath={.items[0].endpoints[0].addresses[0]}")
	dnsService, apiService := service("kube-system", "kube-dns"), service("default", "kubernetes")
	var all []beyond
	for _, role := range n.table.roles() {
		all = append(all,
			beyond{pair{role, "dns"}, n.dns.address, 53},
			beyond{pair{role, "dns"}, dnsService, 53},
			beyond{pair{role, "apiServer"}, api, 6443},
			beyond{pair{role, "apiServer"}, apiService, 443})
	}
	return all
}

// policy is a NetworkPolicy as far as the tests change it.
type policy struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		PodSelector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"podSelector"`
		Ingress []json.RawMessage `json:"ingress"`
		Egress  []json.RawMessage `json:"egress"`
	} `json:"spec"`
}

// rule is one allow rule of a live policy.
type rule struct {
	namespace, policy, direction string
	index                        int
	text                         json.RawMessage
	// all are the policy's rules of that direction.
	all []json.RawMessage
	// pair is what the rule lets through: a role, and the role or the outside that its peer is.
	pair pair
}

func (r rule) String() string { return fmt.Sprintf("%s-of-%s-%s", r.pair, r.policy, r.direction) }

// rules lists every allow rule of the roles' policies in the cluster.
func (n *network) rules() []rule {
	n.Helper()
	var rules []rule
	for _, namespace := range []string{platform, workers} {
		var list struct{ Items []policy }
		if err := n.get(&list, "networkpolicies", "-n", namespace); err != nil {
			n.Fatal(err)
		}
		for _, p := range list.Items {
			role := p.Spec.PodSelector.MatchLabels[labelRole]
			for i, text := range p.Spec.Ingress {
				rules = append(rules, rule{namespace, p.Metadata.Name, "ingress", i, text, p.Spec.Ingress, pair{n.peer(text), role}})
			}
			for i, text := range p.Spec.Egress {
				rules = append(rules, rule{namespace, p.Metadata.Name, "egress", i, text, p.Spec.Egress, pair{role, n.peer(text)}})
			}
		}
	}
	return rules
}

// peer names the other side of a rule: a role, dns, or an address range.
func (n *network) peer(text json.RawMessage) string {
	n.Helper()
	type side struct {
		PodSelector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"podSelector"`
		IPBlock *struct{ CIDR string } `json:"ipBlock"`
	}
	var r struct {
		From  []side                       `json:"from"`
		To    []side                       `json:"to"`
		Ports []struct{ Port json.Number } `json:"ports"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		n.Fatalf("rule %s: %v", text, err)
	}
	sides := append(r.From, r.To...)
	if len(sides) == 0 {
		n.Fatalf("a rule without a peer opens a pod to everybody: %s", text)
	}
	if role := sides[0].PodSelector.MatchLabels[labelRole]; role != "" {
		return role
	}
	for _, port := range r.Ports {
		switch port.Port {
		case "53":
			return "dns"
		case "6443":
			return "apiServer"
		case "2222":
			return "lan"
		}
	}
	n.Fatalf("rule %s: who is its peer?", text)
	return ""
}

// Each allow rule is needed, and lets through what its line of the table says and nothing else: without it exactly that
// line's connections fail. The rules are taken out of the live policies one at a time, while Flux looks away.
func TestNetworkRules(t *testing.T) {
	r := begin(t, 15*time.Minute)
	n := newNetwork(r)
	r.suspend("berth-slurm")

	lines := map[pair][]int{}
	for _, p := range n.pairs() {
		if open := n.declared(p); len(open) > 0 {
			lines[p] = open
		}
	}
	reach := func() map[string]bool {
		closed := map[string]bool{}
		open := n.measure(lines)
		for p, ports := range lines {
			for _, port := range ports {
				if !slices.Contains(open[p], port) {
					closed[p.String()] = true
				}
			}
		}
		for _, w := range n.world() {
			if n.table.outside(w.from, w.to) && !n.places[w.from].reaches(r.ctx, w.address, w.port, dialPatience) {
				closed[w.pair.String()] = true
			}
		}
		return closed
	}
	if closed := reach(); len(closed) > 0 {
		t.Fatalf("closed although nothing was removed: %v", closed)
	}
	rules := n.rules()
	for p := range lines {
		if !slices.ContainsFunc(rules, func(l rule) bool { return l.pair == p }) {
			t.Errorf("the table declares %s; no policy has a rule for it", p)
		}
	}
	for _, l := range rules {
		t.Run("without-"+l.String(), func(t *testing.T) {
			if l.pair.from == "lan" {
				t.Skip("no address of the LAN exists in the box; TestLoginFromLAN measures this rule")
			}
			removed := []rule{l}
			if l.pair.from == l.pair.to {
				if l.direction == "egress" {
					t.Skip("removed with the ingress rule of the same policy")
				}
				// kube-router puts a policy's rules of both directions into one chain, which a packet passes at both of its
				// ends: between two pods of one policy either rule lets it through.
				for _, other := range rules {
					if other.pair == l.pair && other.direction == "egress" {
						removed = append(removed, other)
					}
				}
			}
			if !n.without(t, removed, func() (bool, string) {
				closed := reach()
				return len(closed) == 1 && closed[l.pair.String()], fmt.Sprint("closed: ", closed)
			}) {
				t.Errorf("without %s of %s/%s want exactly %s closed", l.text, l.namespace, l.policy, l.pair)
			}
		})
	}
	r.eventually(30*time.Second, "everything is open again", func() (bool, string) {
		closed := reach()
		return len(closed) == 0, fmt.Sprint("closed: ", closed)
	})
}

// without takes rules of one live policy, one a direction, out of it, looks until the answer is yes or half a minute is
// over, and puts the rules back.
func (n *network) without(t *testing.T, removed []rule, look func() (bool, string)) bool {
	t.Helper()
	patch := func(operations []string) {
		t.Helper()
		if _, err := n.box.Kubectl(n.ctx, "patch", "networkpolicy", "-n", removed[0].namespace, removed[0].policy, "--type=json",
			"-p", "["+strings.Join(operations, ",")+"]"); err != nil {
			t.Fatal(err)
		}
	}
	var remove, restore []string
	for _, l := range removed {
		path := fmt.Sprintf("/spec/%s/%d", l.direction, l.index)
		all, err := json.Marshal(l.all)
		if err != nil {
			t.Fatal(err)
		}
		remove = append(remove, fmt.Sprintf(`{"op":"test","path":%q,"value":%s}`, path, l.text), fmt.Sprintf(`{"op":"remove","path":%q}`, path))
		// The whole list: without its last rule it is not there any more.
		restore = append(restore, fmt.Sprintf(`{"op":"add","path":"/spec/%s","value":%s}`, l.direction, all))
	}
	patch(remove)
	defer patch(restore)
	var seen string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && n.ctx.Err() == nil; {
		var yes bool
		if yes, seen = look(); yes {
			return true
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Log(seen)
	return false
}

// suspend has Flux look away from a layer until the test ends.
func (r *run) suspend(layer string) {
	r.Helper()
	r.kubectl("patch", "kustomization", "-n", flux, layer, "--field-manager=flux", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	r.Cleanup(func() {
		ctx, cancel := aftermath()
		defer cancel()
		for _, args := range [][]string{
			{"patch", "kustomization", "-n", flux, layer, "--field-manager=flux", "--type=merge", "-p", `{"spec":{"suspend":false}}`},
			{"annotate", "kustomization", "-n", flux, layer, "--overwrite", "reconcile.fluxcd.io/requestedAt=" + time.Now().Format(time.RFC3339Nano)},
		} {
			if _, err := r.box.Kubectl(ctx, args...); err != nil {
				r.Errorf("have Flux look again at %s: %v", layer, err)
			}
		}
	})
}

// People arrive by SSH from the lab's network and from nowhere else. The box has no such network (nothing in it may even
// send to one of its addresses), so the rule's range is moved to the stranger for as long as the measurement takes.
func TestLoginFromLAN(t *testing.T) {
	r := begin(t, 8*time.Minute)
	n := newNetwork(r)
	r.suspend("berth-slurm")
	from, to := n.places[stranger], n.places["login"]
	i := slices.IndexFunc(n.rules(), func(l rule) bool { return l.pair == pair{"lan", "login"} })
	if i < 0 {
		t.Fatal("no policy lets the LAN in to login")
	}
	l := n.rules()[i]
	sshPort := 2222
	if from.reaches(r.ctx, to.address, sshPort, dialPatience) {
		t.Error("somebody outside of the LAN reaches sshd")
	}
	path := fmt.Sprintf("/spec/ingress/%d/from/0/ipBlock/cidr", l.index)
	cidr := r.kubectl("get", "networkpolicy", "-n", l.namespace, l.policy, "-o", fmt.Sprintf("jsonpath={.spec.ingress[%d].from[0].ipBlock.cidr}", l.index))
	move := func(cidr string) {
		t.Helper()
		r.kubectl("patch", "networkpolicy", "-n", l.namespace, l.policy, "--type=json", "-p", fmt.Sprintf(`[{"op":"replace","path":%q,"value":%q}]`, path, cidr))
	}
	move(from.address + "/32")
	r.eventually(20*time.Second, "sshd is reached from the range", func() (bool, string) {
		return from.reaches(r.ctx, to.address, sshPort, dialPatience), "closed"
	})
	for _, port := range n.ports {
		if port != sshPort && from.reaches(r.ctx, to.address, port, dialPatience) {
			t.Errorf("port %d of login is open to the range, too", port)
		}
	}
	move(cidr)
	r.eventually(20*time.Second, "sshd is closed again", func() (bool, string) {
		return !from.reaches(r.ctx, to.address, sshPort, dialPatience), "open"
	})
}
