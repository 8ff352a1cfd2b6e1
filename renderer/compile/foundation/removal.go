package foundation

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// PoolsFirst is the name of the policy that keeps the platform while a WorkerPool is there.
const PoolsFirst = "berth-pools-first"

// needed are the objects of the layer slurm without which a pool cannot be left in peace: what its running jobs, slurmctld, the
// autoscaler and the paths between them rest on. All are in every site. (Objects that a push may take away for good, such as the
// advisor's settings, must not be here: their removal would be refused.)
var needed = []struct {
	group, version, resource string
	names                    []string
}{
	{"apps", "v1", "deployments", []string{"slurm-accounting", "slurm-autoscaler", "slurm-login", "slurm-rest"}},
	{"apps", "v1", "statefulsets", []string{"slurm-controller", "slurm-database"}},
	{"", "v1", "services", []string{"slurm-accounting", "slurm-autoscaler", "slurm-controller", "slurm-database", "slurm-login", "slurm-rest", "slurm-workers"}},
	{"", "v1", "serviceaccounts", []string{"slurm-autoscaler", "slurm-controller"}},
	{"", "v1", "configmaps", []string{"slurm-accounting", "slurm-database", "slurm-rest", "slurm-users"}},
	{"networking.k8s.io", "v1", "networkpolicies", []string{"slurm-accounting", "slurm-autoscaler", "slurm-controller", "slurm-database", "slurm-login", "slurm-rest", "slurm-worker"}},
	{"policy", "v1", "poddisruptionbudgets", []string{"slurm-busy-workers"}},
	{"rbac.authorization.k8s.io", "v1", "roles", []string{"slurm-autoscaler", "slurm-guard"}},
	{"rbac.authorization.k8s.io", "v1", "rolebindings", []string{"slurm-autoscaler", "slurm-guard"}},
	{v1alpha1.Group, v1alpha1.GroupVersion.Version, "slurmconfigs", []string{"slurm"}},
}

// poolsFirst refuses the deletion of the platform, its namespaces and its custom resources while a WorkerPool is there. A
// pool's finalizer waits for its jobs, but nobody would take it off once the autoscaler, slurmctld or what lies between them has gone;
// and a namespace that is deleted ends its pods whatever any finalizer says. Flux, which deletes a layer's objects all at
// once, has the pools deleted and the rest refused, and tries again until the pools are gone.
func poolsFirst(s *site.Site) []any {
	fail, exact := admissionv1.Fail, admissionv1.Equivalent
	rule := func(group, version, resource string, names ...string) admissionv1.NamedRuleWithOperations {
		return admissionv1.NamedRuleWithOperations{
			ResourceNames: names,
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
			},
		}
	}
	hosts := s.Namespaces.Slurm + hostsRole
	rules := []admissionv1.NamedRuleWithOperations{
		rule("", "v1", "namespaces", s.Namespaces.Slurm, s.Namespaces.Workers),
		rule("apiextensions.k8s.io", "v1", "customresourcedefinitions", "slurmconfigs."+v1alpha1.Group, "workerpools."+v1alpha1.Group),
		rule("rbac.authorization.k8s.io", "v1", "clusterroles", hosts),
		rule("rbac.authorization.k8s.io", "v1", "clusterrolebindings", hosts),
		rule("kustomize.toolkit.fluxcd.io", "v1", "kustomizations", "berth-storage"),
	}
	for _, n := range needed {
		rules = append(rules, rule(n.group, n.version, n.resource, n.names...))
	}
	pools := &admissionv1.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkerPool"}
	allow := admissionv1.AllowAction
	return []any{
		&admissionv1.ValidatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: PoolsFirst, Labels: naming.Labels("pools-first")},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				ParamKind:     pools,
				FailurePolicy: &fail,
				MatchConstraints: &admissionv1.MatchResources{
					MatchPolicy: &exact,
					// Of a namespace itself its own labels count; other objects without a namespace are never left out.
					NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
						Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn,
						Values: []string{s.Namespaces.Slurm, s.Namespaces.Workers, s.Namespaces.Flux},
					}}},
					ResourceRules: rules,
				},
				MatchConditions: []admissionv1.MatchCondition{
					{
						// Made anew for a field that cannot change: its pods go on.
						Name:       "takes-its-pods-along",
						Expression: "!(has(request.options) && has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Orphan')",
					},
					{
						Name: "nobody-said-all-the-same",
						Expression: fmt.Sprintf("!(has(oldObject.metadata.annotations) && '%[1]s' in oldObject.metadata.annotations && oldObject.metadata.annotations['%[1]s'] == 'allowed')",
							v1alpha1.AnnotationRemoval),
					},
				},
				Validations: []admissionv1.Validation{{
					Expression: "false", // for each pool that is there
					Message:    "worker pools are still there, and need this to end their jobs in peace",
					MessageExpression: fmt.Sprintf("'the worker pool ' + params.metadata.name + ' is still there, and needs this to end its jobs in peace' + %s + '. "+
						"Remove the pools first: kubectl delete workerpools --namespace %s --all. To delete this all the same: kubectl annotate it %s=allowed'",
						poolSays, s.Namespaces.Workers, v1alpha1.AnnotationRemoval),
				}},
			},
		},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: PoolsFirst, Labels: naming.Labels("pools-first")},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: PoolsFirst,
				ParamRef: &admissionv1.ParamRef{
					Namespace: s.Namespaces.Workers, Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: &allow,
				},
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

// Keeps tells whether the policy refuses the deletion of the object of the slurm layer while a WorkerPool is there.
func Keeps(o manifest.Object) bool {
	plural := strings.ToLower(o.Kind()) + "s"
	if o.Kind() == "NetworkPolicy" {
		plural = "networkpolicies"
	}
	for _, n := range needed {
		if n.resource == plural && slices.Contains(n.names, o.Name()) {
			return true
		}
	}
	return strings.HasPrefix(plural, "clusterrole") && strings.HasSuffix(o.Name(), hostsRole)
}

// hostsRole is what follows the namespace in the name of the autoscaler's right to see hosts, which belongs to no namespace.
const hostsRole = "-autoscaler-hosts"

// poolSays is what a pool that is being deleted says it waits for.
const poolSays = "(has(params.metadata.deletionTimestamp) && has(params.status) && has(params.status.conditions) && " +
	"params.status.conditions.exists(c, c.type == 'Ready') ? ' (it ' + params.status.conditions.filter(c, c.type == 'Ready')[0].message + ')' : '')"
