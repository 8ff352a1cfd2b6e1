package api_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// kinds are the Go types that the definitions must agree with.
var kinds = map[string]reflect.Type{
	"SlurmConfig": reflect.TypeFor[v1alpha1.SlurmConfig](),
	"WorkerPool":  reflect.TypeFor[v1alpha1.WorkerPool](),
}

func decode(t *testing.T, text []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// The API server runs the same validation, the cost limits of the CEL rules and the structural schema included.
func TestDefinitionsAreAcceptedByTheAPIServer(t *testing.T) {
	for name, text := range api.CRDs() {
		crd := decode(t, text)
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		var internal apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, &internal, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		internal.Status.StoredVersions = []string{"v1alpha1"}
		if errs := validation.ValidateCustomResourceDefinition(context.Background(), &internal); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs.ToAggregate())
		}
	}
}

// The definitions are generated from the types (go generate ./v1alpha1). Someone who changes one and forgets the other is
// told which field differs.
func TestDefinitionsAgreeWithTheTypes(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range api.CRDs() {
		crd := decode(t, text)
		kind := crd.Spec.Names.Kind
		seen[kind] = true
		if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Subresources.Status == nil {
			t.Fatalf("%s: want one version with the status subresource", kind)
		}
		compare(t, kind, *crd.Spec.Versions[0].Schema.OpenAPIV3Schema, kinds[kind])
	}
	if len(seen) != len(kinds) {
		t.Errorf("definitions of %v, want one for each of %v", slices.Collect(maps.Keys(seen)), slices.Collect(maps.Keys(kinds)))
	}
}

// compare walks a schema and a type together.
func compare(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps, typ reflect.Type) {
	t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[metav1.Time](), typ == reflect.TypeFor[metav1.ObjectMeta]():
		return // the API machinery's own
	case typ == reflect.TypeFor[corev1.PodTemplateSpec]():
		if schema.XPreserveUnknownFields == nil || !*schema.XPreserveUnknownFields {
			t.Errorf("%s: a pod template of another Kubernetes version would lose its fields", path)
		}
		return
	}
	switch typ.Kind() {
	case reflect.Struct:
		compareFields(t, path, schema, typ)
	case reflect.Slice:
		compare(t, path+"[]", *schema.Items.Schema, typ.Elem())
	case reflect.Map:
		compare(t, path+"{}", *schema.AdditionalProperties.Schema, typ.Elem())
	default:
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int32: "integer", reflect.Int64: "integer"}[typ.Kind()]
		if schema.Type != want {
			t.Errorf("%s: the definition says %q, the type %s", path, schema.Type, typ)
		}
	}
}

func compareFields(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps, typ reflect.Type) {
	t.Helper()
	fields, required := map[string]bool{}, []string{}
	for field := range typ.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			fields["apiVersion"], fields["kind"] = true, true
			continue
		}
		fields[name] = true
		if !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
		if property, ok := schema.Properties[name]; ok {
			compare(t, path+"."+name, property, field.Type)
		} else {
			t.Errorf("%s.%s is missing in the definition: run go generate in components/api/v1alpha1", path, name)
		}
	}
	for name := range schema.Properties {
		if !fields[name] {
			t.Errorf("%s.%s is not in the type: run go generate in components/api/v1alpha1", path, name)
		}
	}
	slices.Sort(required)
	if got := slices.Sorted(slices.Values(schema.Required)); !slices.Equal(got, required) {
		t.Errorf("%s: the definition requires %v, the type %v", path, got, required)
	}
}

// Helm's toJson is json.Marshal, so a chart can compute the same hash.
func TestHashIsWhatAHelmTemplateComputes(t *testing.T) {
	spec := v1alpha1.SlurmConfigSpec{Files: map[string]string{"slurm.conf": "ClusterName=lab\n", "cgroup.conf": "CgroupPlugin=disabled\n"}}
	// printf '%s' '{"cgroup.conf":"CgroupPlugin=disabled\n","slurm.conf":"ClusterName=lab\n"}' | sha256sum
	const want = "37048266edc4e40fe969544c4b98d7802e7e7f1177ed9a8397761846cceb592d"
	if got := spec.Hash(); got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
	config := v1alpha1.SlurmConfig{Spec: spec}
	if config.ConfigHash() != want {
		t.Error("without the annotation the hash is the files' own")
	}
	config.Annotations = map[string]string{v1alpha1.AnnotationConfigHash: "abc"}
	if config.ConfigHash() != "abc" {
		t.Error("the annotation is the name that WorkerPools use")
	}
}

// An object that no controller has looked at must not count as Ready.
func TestStatusDefaultsToUnobserved(t *testing.T) {
	for name, text := range api.CRDs() {
		status := decode(t, text).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		var value map[string]int
		if status.Default == nil || json.Unmarshal(status.Default.Raw, &value) != nil || value["observedGeneration"] != -1 {
			t.Errorf("%s: status defaults to %v, want observedGeneration -1", name, status.Default)
		}
	}
}
