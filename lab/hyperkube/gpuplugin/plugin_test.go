package gpuplugin

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is the registration half of a kubelet.
type kubelet struct {
	api.UnimplementedRegistrationServer
	registered chan *api.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- r
	return &api.Empty{}, nil
}

func TestRegistersListsAndAllocates(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{registered: make(chan *api.RegisterRequest, 1)}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, k)
	go func() { _ = s.Serve(l) }()
	defer s.Stop()

	cmd := Command()
	cmd.SetArgs([]string{"--count", "2", "--plugin-dir", dir, "--device-dir", "/run/gpu"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = cmd.ExecuteContext(ctx) }()
	var r *api.RegisterRequest
	select {
	case r = <-k.registered:
	case <-time.After(10 * time.Second):
		t.Fatal("the plugin did not register in 10 s")
	}
	if r.ResourceName != "nvidia.com/gpu" || r.Version != "v1beta1" {
		t.Errorf("registered %v", r)
	}

	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	plugin := api.NewDevicePluginClient(conn)
	stream, err := plugin.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil || len(list.Devices) != 2 || list.Devices[0].Health != api.Healthy {
		t.Fatalf("list %v, %v; want two healthy cards", list, err)
	}
	second := list.Devices[1].ID
	answer, err := plugin.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{second}}}})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.ContainerResponses[0]
	if got.Envs["NVIDIA_VISIBLE_DEVICES"] != second || len(got.Devices) != 1 ||
		got.Devices[0].HostPath != "/run/gpu/nvidia1" || got.Devices[0].ContainerPath != "/dev/nvidia1" {
		t.Errorf("allocated %v; want the second card under its number", got)
	}
	if _, err := plugin.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"GPU-none"}}}}); err == nil {
		t.Error("a card that is not there was allocated")
	}
}
