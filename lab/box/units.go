package box

import (
	"context"
	"fmt"
	"strconv"

	"github.com/berth-hpc/berth/lab/supervisor"
)

// nodeUnits defines the control plane and the node; the programs are built if
// need be.
func (b *Box) nodeUnits(ctx context.Context) ([]supervisor.Unit, error) {
	hyperkube, err := b.builder.Hyperkube(ctx)
	if err != nil {
		return nil, err
	}
	router, err := b.builder.KubeRouter(ctx)
	if err != nil {
		return nil, err
	}
	conf := func(name string) string { return b.path("conf", name) }
	pki := func(name string) string { return b.path("pki", name) }
	kube := func(component string, args ...string) []string {
		return append([]string{hyperkube, component}, args...)
	}
	return []supervisor.Unit{
		{Name: "etcd", Argv: []string{"/usr/bin/etcd",
			"--name=box", "--data-dir=" + b.path("etcd"), "--logger=zap", "--log-level=warn",
			// A box that dies with the machine is started over, not recovered.
			"--unsafe-no-fsync",
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=box=http://127.0.0.1:2380",
		}},
		{Name: "containerd", Argv: []string{"/usr/bin/containerd", "--config", conf("containerd.toml")}},
		{Name: "kube-apiserver", Argv: kube("kube-apiserver",
			"--etcd-servers=http://127.0.0.1:2379",
			"--bind-address=0.0.0.0", "--secure-port="+apiPort, "--advertise-address="+NodeIP,
			"--service-cluster-ip-range="+ServiceCIDR,
			"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
			"--client-ca-file="+pki("ca.crt"),
			"--kubelet-client-certificate="+pki("apiserver-kubelet.crt"), "--kubelet-client-key="+pki("apiserver-kubelet.key"),
			"--kubelet-certificate-authority="+pki("ca.crt"),
			// By name it would ask a DNS that there is not.
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc."+domain,
			"--service-account-key-file="+pki("service-account.key"), "--service-account-signing-key-file="+pki("service-account.key"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true", "--profiling=false",
		)},
		{Name: "kube-controller-manager", Argv: kube("kube-controller-manager",
			"--kubeconfig="+conf("controller-manager.kubeconfig"), "--leader-elect=false",
			"--use-service-account-credentials=true", "--bind-address=127.0.0.1",
			"--root-ca-file="+pki("ca.crt"), "--service-account-private-key-file="+pki("service-account.key"),
			"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
			"--allocate-node-cidrs=true", "--cluster-cidr="+PodCIDR, "--node-cidr-mask-size=17",
		)},
		{Name: "kube-scheduler", Argv: kube("kube-scheduler",
			"--kubeconfig="+conf("scheduler.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
		)},
		{Name: "kubelet", Argv: kube("kubelet",
			"--config="+conf("kubelet.json"), "--kubeconfig="+conf("kubelet-client.kubeconfig"),
			"--hostname-override="+NodeName, "--node-ip="+NodeIP,
		)},
		// A starting kube-proxy takes the chains that it finds for complete; one that its predecessor had emptied, to delete it
		// next, would stay empty, and its service dead. So it starts without any.
		{Name: "kube-proxy", Argv: append([]string{"/bin/sh", "-c",
			"for family in ip ip6; do nft delete table $family kube-proxy 2>/dev/null; done; exec \"$@\"", "kube-proxy"},
			kube("kube-proxy", "--config="+conf("kube-proxy.json"))...)},
		{Name: "kube-router", Argv: []string{router,
			"--kubeconfig=" + conf("lab.kubeconfig"), "--hostname-override=" + NodeName,
			"--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false", "--enable-cni=false",
			"--service-cluster-ip-range=" + ServiceCIDR, "--service-node-port-range=30000-32767",
			// Its own API, for its own metrics, would listen on every address.
			"--health-port=0", "--metrics-port=0",
		}},
		{Name: "gpu-plugin", Argv: kube("gpu-plugin", "--count="+strconv.Itoa(b.Cards), "--device-dir="+deviceDir)},
	}, nil
}

// fluxUnits defines the git server and the Flux controllers.
func (b *Box) fluxUnits(ctx context.Context) ([]supervisor.Unit, error) {
	flux, err := b.builder.Flux(ctx)
	if err != nil {
		return nil, err
	}
	env := append(daemonEnv(), "RUNTIME_NAMESPACE=flux-system", "KUBECONFIG="+b.path("conf", "lab.kubeconfig"))
	return []supervisor.Unit{
		{Name: "git-server", Argv: []string{b.path("bin", "box"), GitServerCommand, b.path("git"), "127.0.0.1:" + gitPort}},
		{Name: "source-controller", Env: env, Argv: []string{flux.SourceController,
			"--watch-all-namespaces", "--enable-leader-election=false", "--log-level=info", "--concurrent=4",
			"--requeue-dependency=2s",
			"--storage-path=" + b.path("flux"), "--storage-addr=127.0.0.1:9790", "--storage-adv-addr=127.0.0.1:9790",
			"--health-addr=127.0.0.1:9440", "--metrics-addr=127.0.0.1:9441",
		}},
		{Name: "kustomize-controller", Env: env, Argv: []string{flux.KustomizeController,
			"--watch-all-namespaces", "--enable-leader-election=false", "--log-level=info", "--concurrent=4",
			// A layer that waits for another looks again at once, not in half a minute.
			"--requeue-dependency=1s",
			"--health-addr=127.0.0.1:9442", "--metrics-addr=127.0.0.1:9443",
		}},
	}, nil
}

// unit is the definition of one of the box's daemons.
func (b *Box) unit(ctx context.Context, name string) (supervisor.Unit, error) {
	for _, define := range []func(context.Context) ([]supervisor.Unit, error){b.nodeUnits, b.fluxUnits} {
		units, err := define(ctx)
		if err != nil {
			return supervisor.Unit{}, err
		}
		for _, u := range units {
			if u.Name == name {
				if u.Env == nil {
					u.Env = daemonEnv()
				}
				return u, nil
			}
		}
	}
	return supervisor.Unit{}, fmt.Errorf("box: no daemon named %q; `box status` lists them", name)
}

// start starts the named units.
func (b *Box) start(ctx context.Context, names ...string) error {
	for _, n := range names {
		u, err := b.unit(ctx, n)
		if err != nil {
			return err
		}
		if err := b.client.Start(ctx, u); err != nil {
			return err
		}
	}
	return nil
}
