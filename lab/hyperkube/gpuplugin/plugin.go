// Package gpuplugin is a kubelet device plugin that offers cards which are not
// there: character devices stand for them. It lets the lab run pods that ask
// for nvidia.com/gpu, and Slurm's GRES in them, on a machine without a GPU. It
// speaks the real device plugin protocol (v1beta1) to a real kubelet.
package gpuplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Command is the plugin's command line.
func Command() *cobra.Command {
	p := &plugin{}
	var count int
	cmd := &cobra.Command{
		Use:          "gpu-plugin",
		Short:        "Offer character devices to the kubelet as if they were cards",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 {
				return fmt.Errorf("--count %d: want at least one card", count)
			}
			p.cards = cards(p.deviceDir, count)
			return p.serve(cmd.Context(), filepath.Join(p.pluginDir, "kubelet.sock"))
		},
	}
	cmd.Flags().IntVar(&count, "count", 8, "how many cards the node has")
	cmd.Flags().StringVar(&p.resource, "resource", "nvidia.com/gpu", "the resource's name")
	cmd.Flags().StringVar(&p.deviceDir, "device-dir", "/run/berth-lab/gpu", "where the node's character devices nvidia0, nvidia1, … are")
	cmd.Flags().StringVar(&p.pluginDir, "plugin-dir", api.DevicePluginPath, "the kubelet's directory for plugin sockets")
	return cmd
}

// card is one fake card: its id is what the kubelet allocates by.
type card struct{ uuid, path string }

// cards names n cards. The ids look like NVIDIA's and are the same at each start.
func cards(dir string, n int) []card {
	all := make([]card, n)
	for i := range all {
		all[i] = card{
			uuid: fmt.Sprintf("GPU-be47-%04d-0000-0000-%012d", i, i),
			path: filepath.Join(dir, fmt.Sprintf("nvidia%d", i)),
		}
	}
	return all
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource, deviceDir, pluginDir string
	cards                          []card
}

// serve registers with the kubelet and answers it; when the kubelet restarts it
// clears its plugin directory, so serve watches its own socket and starts over.
func (p *plugin) serve(ctx context.Context, kubelet string) error {
	for {
		if err := p.serveOnce(ctx, kubelet); err != nil {
			klog.ErrorS(err, "Not registered, trying again", "resource", p.resource)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (p *plugin) serveOnce(ctx context.Context, kubelet string) error {
	socket := filepath.Join(p.pluginDir, "berth-gpu.sock")
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, p)
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	if err := p.register(ctx, kubelet, filepath.Base(socket)); err != nil {
		return err
	}
	klog.InfoS("Registered", "resource", p.resource, "cards", len(p.cards))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if _, err := os.Stat(socket); err != nil {
				return fmt.Errorf("the kubelet restarted: %w", err)
			}
		}
	}
}

func (p *plugin) register(ctx context.Context, kubelet, endpoint string) error {
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: p.resource,
		Options: &api.DevicePluginOptions{},
	})
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the cards once: they never fall ill.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	answer := &api.ListAndWatchResponse{}
	for _, c := range p.cards {
		answer.Devices = append(answer.Devices, &api.Device{ID: c.uuid, Health: api.Healthy})
	}
	if err := stream.Send(answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate gives the container its cards under their numbers on the node, as NVIDIA's
// device plugin and container toolkit do: the second card is /dev/nvidia1 also where
// it is the container's only one.
func (p *plugin) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	known := map[string]card{}
	for _, c := range p.cards {
		known[c.uuid] = c
	}
	answer := &api.AllocateResponse{}
	for _, r := range req.ContainerRequests {
		ids := append([]string(nil), r.DevicesIds...)
		sort.Strings(ids)
		one := &api.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(ids, ",")}}
		for _, id := range ids {
			c, ok := known[id]
			if !ok {
				return nil, fmt.Errorf("no card %q on this node", id)
			}
			one.Devices = append(one.Devices, &api.DeviceSpec{
				HostPath: c.path, ContainerPath: filepath.Join("/dev", filepath.Base(c.path)), Permissions: "rw",
			})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}
