package box

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-hpc/berth/lab/pki"
)

type object = map[string]any
type list = []any

// clients are the users of the API server: certificate and kubeconfig name →
// who the API server takes them for.
var clients = []pki.Request{
	{File: "admin", User: "berth-lab-admin", Groups: []string{"system:masters"}},
	{File: "controller-manager", User: "system:kube-controller-manager"},
	{File: "scheduler", User: "system:kube-scheduler"},
	{File: "kubelet-client", User: "system:node:" + NodeName, Groups: []string{"system:nodes"}},
	{File: "kube-proxy", User: "system:kube-proxy"},
	// What the lab runs beside the cluster: kube-router and the Flux controllers.
	{File: "lab", User: "berth-lab", Groups: []string{"system:masters"}},
	// The API server, when it talks to the kubelet (logs, exec, port-forward).
	{File: "apiserver-kubelet", User: "kube-apiserver", Groups: []string{"system:masters"}},
}

// writeConfig writes every file that the daemons read. It may be called at each
// start: what is still good (certificates, keys) is kept.
func (b *Box) writeConfig() error {
	steps := []func() error{b.writeCertificates, b.writeKubeconfigs, b.writeServiceAccountKey, b.writeContainerd, b.writeNode}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (b *Box) writeCertificates() error {
	authority, err := pki.Open(b.path("pki"))
	if err != nil {
		return err
	}
	servers := []pki.Request{
		{
			File: "apiserver", User: "kube-apiserver",
			Names: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain},
			IPs:   []string{"127.0.0.1", NodeIP, serviceIP},
		},
		{File: "kubelet", User: "kubelet", Names: []string{NodeName}, IPs: []string{"127.0.0.1", NodeIP}},
	}
	for _, r := range append(servers, clients...) {
		if err := authority.Issue(r); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfigs writes one kubeconfig a client for use inside the box, and
// the administrator's, complete in itself, for use from the machine.
func (b *Box) writeKubeconfigs() error {
	for _, c := range clients {
		config := kubeconfig("https://127.0.0.1:"+apiPort,
			object{"certificate-authority": b.path("pki", "ca.crt")},
			object{"client-certificate": b.path("pki", c.File+".crt"), "client-key": b.path("pki", c.File+".key")})
		if err := writeJSON(b.path("conf", c.File+".kubeconfig"), config, 0o600); err != nil {
			return err
		}
	}
	embedded := map[string]string{}
	for _, f := range []string{"ca.crt", "admin.crt", "admin.key"} {
		text, err := os.ReadFile(b.path("pki", f))
		if err != nil {
			return err
		}
		embedded[f] = base64.StdEncoding.EncodeToString(text)
	}
	return writeJSON(b.Kubeconfig(), kubeconfig("https://127.0.0.1:"+b.APIPort,
		object{"certificate-authority-data": embedded["ca.crt"]},
		object{"client-certificate-data": embedded["admin.crt"], "client-key-data": embedded["admin.key"]}), 0o600)
}

func kubeconfig(server string, cluster, user object) object {
	cluster["server"] = server
	return object{
		"apiVersion": "v1", "kind": "Config", "current-context": "berth-lab",
		"clusters": list{object{"name": "berth-lab", "cluster": cluster}},
		"users":    list{object{"name": "berth-lab", "user": user}},
		"contexts": list{object{"name": "berth-lab", "context": object{"cluster": "berth-lab", "user": "berth-lab"}}},
	}
}

// writeServiceAccountKey makes the key that signs service account tokens.
func (b *Box) writeServiceAccountKey() error {
	path := b.path("pki", "service-account.key")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// writeContainerd writes the configuration of the box's own containerd. Nothing
// of it, socket and plugins' directories included, is where a containerd of the
// machine would look.
func (b *Box) writeContainerd() error {
	text := fmt.Sprintf(`version = 2
root = %[1]q
state = "/run/containerd"
# The machine may not raise OOM scores (see restrict_oom_score_adj below).
oom_score = 0

[grpc]
  address = %[2]q

[plugins."io.containerd.internal.v1.opt"]
  path = %[3]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  # Without CAP_SYS_RESOURCE no process may lower its OOM score; containerd then
  # keeps its own instead of failing to start the pod.
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  # Pods may bind low ports without a capability, as on a default Docker.
  enable_unprivileged_ports = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %[5]q

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`, b.path("containerd"), b.containerdSocket(), b.path("opt"), pauseImage, b.path("conf", "cni"))
	return writeFile(b.path("conf", "containerd.toml"), []byte(text), 0o644)
}

func (b *Box) containerdSocket() string { return b.path("run", "containerd.sock") }

// writeNode writes the pod network's, the kubelet's and the proxy's configuration.
func (b *Box) writeNode() error {
	if err := os.MkdirAll(b.path("conf", "cni"), 0o755); err != nil {
		return err
	}
	network := object{
		"cniVersion": "0.4.0", "name": "pods",
		"plugins": list{object{
			"type": "bridge", "bridge": podBridge, "isGateway": true, "hairpinMode": true,
			// No masquerading: nothing leaves, and policies see who calls.
			"ipMasq": false,
			"ipam": object{
				"type": "host-local", "dataDir": "/run/pod-addresses",
				"ranges": list{list{object{"subnet": PodCIDR}}},
				"routes": list{object{"dst": "0.0.0.0/0"}},
			},
		}},
	}
	kubelet := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address":           NodeIP,
		"tlsCertFile":       b.path("pki", "kubelet.crt"),
		"tlsPrivateKeyFile": b.path("pki", "kubelet.key"),
		"authentication": object{
			"x509": object{"clientCAFile": b.path("pki", "ca.crt")}, "anonymous": object{"enabled": false},
		},
		"authorization":            object{"mode": "Webhook"},
		"containerRuntimeEndpoint": "unix://" + b.containerdSocket(),
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + b.cgroup(),
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"clusterDNS":               list{dnsIP},
		"clusterDomain":            domain,
		// Pods that ask for the node's own DNS get none: there is no outside.
		"resolvConf":          b.path("conf", "resolv.conf"),
		"podLogsDir":          "/var/log/pods",
		"volumePluginDir":     b.path("kubelet", "plugins"),
		"maxPods":             200,
		"serializeImagePulls": false,
		// Images come from no registry, so one that was collected is lost; and a
		// development machine's disk may well be full.
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"evictionHard":                object{"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%"},
		// Pods come and go by the second here: see their ends at once.
		"nodeStatusUpdateFrequency": "5s",
		"syncFrequency":             "10s",
		"registerNode":              true,
	}
	proxy := object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "hostnameOverride": NodeName, "clusterCIDR": PodCIDR,
		"clientConnection":   object{"kubeconfig": b.path("conf", "kube-proxy.kubeconfig")},
		"nftables":           object{"minSyncPeriod": "100ms", "syncPeriod": "30s"},
		"healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
		// These sysctls belong to the machine, not to a network namespace.
		"conntrack": object{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	}
	if err := writeFile(b.path("conf", "resolv.conf"), nil, 0o644); err != nil {
		return err
	}
	for name, config := range map[string]object{"cni/10-pods.conflist": network, "kubelet.json": kubelet, "kube-proxy.json": proxy} {
		if err := writeJSON(b.path("conf", filepath.FromSlash(name)), config, 0o644); err != nil {
			return err
		}
	}
	return nil
}
