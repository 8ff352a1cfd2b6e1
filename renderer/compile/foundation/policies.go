package foundation

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// AllowAPIServer lets a namespace's pods ask the cluster's DNS and call the Kubernetes API server, and nothing else: what an
// operator needs. The API server's endpoints lie in network.apiServer; DNS answers from the pod and service networks.
func AllowAPIServer(s *site.Site, namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "allow-api-server", Namespace: namespace, Labels: naming.Labels("allow-api-server")},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{To: Ranges(s.Network.Pods, s.Network.Services), Ports: append(Ports(corev1.ProtocolUDP, 53), Ports(corev1.ProtocolTCP, 53)...)},
				{To: Ranges(s.Network.APIServer, s.Network.Services), Ports: Ports(corev1.ProtocolTCP, 443, 6443)},
			},
		},
	}
}

// Ranges are peers by address range.
func Ranges(cidrs ...string) []networkingv1.NetworkPolicyPeer {
	peers := make([]networkingv1.NetworkPolicyPeer, len(cidrs))
	for i, cidr := range cidrs {
		peers[i] = networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}
	}
	return peers
}

// Ports are ports of one protocol.
func Ports(protocol corev1.Protocol, numbers ...int32) []networkingv1.NetworkPolicyPort {
	ports := make([]networkingv1.NetworkPolicyPort, len(numbers))
	for i, number := range numbers {
		port := intstr.FromInt32(number)
		ports[i] = networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port}
	}
	return ports
}
