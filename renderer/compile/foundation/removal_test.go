package foundation

import (
	"context"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel/environment"

	"github.com/berth-hpc/berth/renderer/site"
)

// expression is one of the policy's, as the API server compiles it.
type expression string

func (e expression) GetExpression() string { return string(e) }
func (e expression) ReturnTypes() []*cel.Type {
	return []*cel.Type{cel.BoolType, cel.StringType}
}

// The API server's own compiler and evaluator, with an object that somebody deletes and a pool that is there.
func TestPoolsFirst(t *testing.T) {
	var s site.Site
	s.Namespaces.Slurm, s.Namespaces.Workers, s.Namespaces.Flux = "slurm", "slurm-workers", "flux-system"
	policy := poolsFirst(&s)[0].(*admissionv1.ValidatingAdmissionPolicy)
	compiler := admissioncel.NewConditionCompiler(apiservercel.MustBaseEnvSet(apiservercel.DefaultCompatibilityVersion()))
	compile := func(expressions ...string) admissioncel.ConditionEvaluator {
		t.Helper()
		accessors := make([]admissioncel.ExpressionAccessor, len(expressions))
		for i, text := range expressions {
			accessors[i] = expression(text)
		}
		compiled := compiler.CompileCondition(accessors, admissioncel.OptionalVariableDeclarations{HasParams: true}, apiservercel.NewExpressions)
		if errs := compiled.CompilationErrors(); len(errs) > 0 {
			t.Fatal(errs)
		}
		return compiled
	}
	var conditions []string
	for _, c := range policy.Spec.MatchConditions {
		conditions = append(conditions, c.Expression)
	}
	applies, message := compile(conditions...), compile(policy.Spec.Validations[0].MessageExpression)

	pool := func(deleted bool) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "berth-hpc.github.io/v1alpha1", "kind": "WorkerPool", "metadata": map[string]any{"name": "cpu", "namespace": "slurm-workers"},
		}}
		if deleted {
			o.Object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-12-02T08:00:00Z"
			o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "message": "waits for job 42 (student, train)"}}}
		}
		return o
	}
	orphan, background := metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground
	for name, c := range map[string]struct {
		annotations map[string]any
		policy      *metav1.DeletionPropagation
		deleted     bool
		refused     string // part of the message; "": let through
	}{
		"a pool that lives":           {policy: &background, refused: "the worker pool cpu is still there, and needs this to end its jobs in peace. Remove the pools first: kubectl delete workerpools --namespace slurm-workers --all"},
		"a pool that waits":           {deleted: true, refused: "(it waits for job 42 (student, train))"},
		"another annotation":          {annotations: map[string]any{"a": "b"}, refused: "still there"},
		"without its pods":            {policy: &orphan},
		"somebody said all the same":  {annotations: map[string]any{"berth-hpc.github.io/removal": "allowed"}},
		"somebody said something":     {annotations: map[string]any{"berth-hpc.github.io/removal": ""}, refused: "berth-hpc.github.io/removal=allowed"},
		"without options of deletion": {refused: "still there"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "slurm-autoscaler", "namespace": "slurm"},
			}}
			if c.annotations != nil {
				object.Object["metadata"].(map[string]any)["annotations"] = c.annotations
			}
			kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
			resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
			attributes := &admission.VersionedAttributes{
				Attributes: admission.NewAttributesRecord(nil, object, kind, "slurm", "slurm-autoscaler", resource, "", admission.Delete,
					&metav1.DeleteOptions{PropagationPolicy: c.policy}, false, nil),
				VersionedOldObject: admission.NewLazyObject(object), VersionedKind: kind,
			}
			request := admissioncel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
			bindings := admissioncel.OptionalVariableBindings{VersionedParams: pool(c.deleted)}
			evaluate := func(e admissioncel.ConditionEvaluator) []admissioncel.EvaluationResult {
				t.Helper()
				results, _, err := e.ForInput(context.Background(), attributes, request, bindings, nil, 10_000_000)
				if err != nil {
					t.Fatal(err)
				}
				for _, result := range results {
					if result.Error != nil {
						t.Fatal(result.Error)
					}
				}
				return results
			}
			refused := true
			for _, result := range evaluate(applies) {
				refused = refused && result.EvalResult.Value() == true
			}
			if refused != (c.refused != "") {
				t.Fatalf("refused: %v", refused)
			}
			if said := evaluate(message)[0].EvalResult.Value().(string); !strings.Contains(said, c.refused) {
				t.Errorf("it says %q, want %q", said, c.refused)
			}
		})
	}
}
