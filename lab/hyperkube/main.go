// Command hyperkube is the control plane and the node of the lab in one binary:
// Kubernetes itself, unchanged, built from its own modules. The name under
// which it is called (or its first argument) chooses the component.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, wherever this runs

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/berth-hpc/berth/lab/hyperkube/gpuplugin"
)

// components maps a component's name to what builds its command. Only the one
// that was asked for is built: their flags are global and would collide.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"gpu-plugin":              gpuplugin.Command,
}

func main() {
	name, args, err := dispatch(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Args = args
	if name == "kubectl" {
		// kubectl prints its own errors and chooses its exit status by them.
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
		return
	}
	os.Exit(cli.Run(components[name]()))
}

// dispatch finds the component in argv: the base name of argv[0], else argv[1].
// The arguments that it returns are those that the component would see if it
// were a program of its own.
func dispatch(argv []string) (name string, args []string, err error) {
	if len(argv) > 0 && known(filepath.Base(argv[0])) {
		return filepath.Base(argv[0]), argv, nil
	}
	if len(argv) > 1 && known(argv[1]) {
		return argv[1], argv[1:], nil
	}
	names := []string{"kubectl"}
	for n := range components {
		names = append(names, n)
	}
	sort.Strings(names)
	return "", nil, fmt.Errorf("hyperkube: name a component as the first argument, or call this program by its name: %s", strings.Join(names, ", "))
}

func known(name string) bool {
	_, ok := components[name]
	return ok || name == "kubectl"
}
