// Package manifests checks the folders of manifests/ and the Helm chart, without a cluster.
// tests/e2e/controlplane/install applies the same folders to a kube-apiserver.
package manifests

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	helm "helm.sh/helm/v4/pkg/cmd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	repository = "../.."
	chart      = repository + "/charts/coordination-apiserver"
	// Oldest version of Kubernetes that the chart supports.
	kubernetes = "1.34.0"
	// Environment variable that makes this test program run as helm.
	asHelm = "MANIFESTS_TEST_AS_HELM"
)

// variant is a way to install the server: a folder of manifests/ with components, and the chart values for the same
// objects.
type variant struct {
	folder     string
	components []string
	values     []string
}

var variants = map[string]variant{
	"disk":                        {"disk", nil, []string{"variant=disk", "etcd.clusterServers="}},
	"disk and the cluster's etcd": {"disk", []string{"cluster-etcd"}, []string{"variant=disk"}},
	"etcd":                        {"etcd", nil, []string{"variant=etcd"}},
	"kubeadm":                     {"kubeadm", nil, nil},
	"kubeadm and cert-manager":    {"kubeadm", []string{"cert-manager"}, []string{"certManager.enabled=true"}},
	"static Pods":                 {"static-pod", nil, []string{"variant=static-pod"}},
}

func TestMain(m *testing.M) {
	if os.Getenv(asHelm) == "" {
		os.Exit(m.Run())
	}
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], func(bool) {})
	if err == nil {
		err = command.Execute()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestChartMatchesManifests checks that the chart renders the same objects as the manifests, for each variant.
func TestChartMatchesManifests(t *testing.T) {
	for name, variant := range variants {
		t.Run(name, func(t *testing.T) {
			want, got := normal(t, overlay(t, variant)), normal(t, template(t, variant.values...))
			if difference := cmp.Diff(want, got); difference != "" {
				t.Errorf("the chart (+) differs from manifests/%s (-):\n%s", variant.folder, difference)
			}
		})
	}
	t.Run("monitoring", func(t *testing.T) {
		without := normal(t, template(t))
		got := normal(t, template(t, "monitoring.podMonitor=true", "monitoring.prometheusRule=true", "monitoring.dashboard=true"))
		for key := range without {
			delete(got, key)
		}
		if difference := cmp.Diff(normal(t, kustomize(t, filepath.Join(repository, "manifests/monitoring"))), got); difference != "" {
			t.Errorf("the chart (+) differs from manifests/monitoring (-):\n%s", difference)
		}
	})
}

// TestObjectsDecodeStrictly checks that no object has an unknown field. kubectl and Helm may accept such a field
// silently.
func TestObjectsDecodeStrictly(t *testing.T) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, aggregator.AddToScheme, certmanager.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	check := func(name string, documents [][]byte) {
		for _, document := range documents {
			if _, _, err := decoder.Decode(document, nil, nil); err != nil {
				t.Errorf("%s: %s\n%s", name, err, document)
			}
		}
	}
	for name, variant := range variants {
		check(name, overlay(t, variant))
		check("chart for "+name, template(t, variant.values...))
	}
	check("monitoring", kustomize(t, filepath.Join(repository, "manifests/monitoring")))
	check("static Pod", documents(t, read(t, "manifests/static-pod/pod.yaml")))
	check("rollback", documents(t, read(t, "manifests/rollback/apiservice.yaml")))
}

// TestNothingInstallsAnAPIService checks that neither a folder nor the chart has an APIService. Only
// `coordination-apiserver takeover` may switch a cluster.
func TestNothingInstallsAnAPIService(t *testing.T) {
	err := filepath.WalkDir(filepath.Join(repository, "manifests"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "kustomization.yaml" || strings.Contains(read(t, path), "kind: Component") {
			return err
		}
		for _, object := range objects(t, kustomize(t, filepath.Dir(path))) {
			if object.GetKind() == "APIService" {
				t.Errorf("%s has an APIService", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, variant := range variants {
		for _, object := range objects(t, template(t, variant.values...)) {
			if object.GetKind() == "APIService" {
				t.Errorf("the chart for %s has an APIService", name)
			}
		}
	}
}

// TestStaticPodMatchesDaemonSet checks that the static Pod and the Pods of manifests/kubeadm differ only in the
// selection of nodes, in ServiceAccount and kubeconfig, and in the source of the serving certificate.
func TestStaticPodMatchesDaemonSet(t *testing.T) {
	var want, got corev1.PodSpec
	for _, object := range objects(t, kustomize(t, filepath.Join(repository, "manifests/kubeadm"))) {
		if object.GetKind() == "DaemonSet" {
			template, _, _ := unstructured.NestedMap(object.Object, "spec", "template", "spec")
			convert(t, template, &want)
		}
	}
	convert(t, objects(t, documents(t, read(t, "manifests/static-pod/pod.yaml")))[0].Object["spec"], &got)

	// Only a DaemonSet selects nodes. A static Pod has files instead of a ServiceAccount and Secrets.
	want.NodeSelector, want.Tolerations = nil, nil
	want.ServiceAccountName, want.AutomountServiceAccountToken = "", nil
	isKubeconfigFlag := func(argument string) bool { return strings.HasPrefix(argument, "--kubeconfig=") }
	got.Containers[0].Args = slices.DeleteFunc(got.Containers[0].Args, isKubeconfigFlag)
	isKubeconfig := func(name string) bool { return name == "kubeconfig" }
	got.Containers[0].VolumeMounts = slices.DeleteFunc(got.Containers[0].VolumeMounts,
		func(mount corev1.VolumeMount) bool { return isKubeconfig(mount.Name) })
	got.Volumes = slices.DeleteFunc(got.Volumes, func(volume corev1.Volume) bool { return isKubeconfig(volume.Name) })
	for _, spec := range []*corev1.PodSpec{&want, &got} {
		slices.SortFunc(spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(spec.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
		for i := range spec.Volumes {
			if spec.Volumes[i].Name == "serving" {
				spec.Volumes[i].VolumeSource = corev1.VolumeSource{}
			}
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("the static Pod (+) differs from manifests/kubeadm (-):\n%s", difference)
	}
}

func TestHelmLintAcceptsTheChart(t *testing.T) {
	for name, variant := range variants {
		if output, err := run(append([]string{"lint", "--strict", "--namespace", "kube-system", chart}, set(variant.values)...)...); err != nil {
			t.Errorf("%s: %s\n%s", name, err, output)
		}
	}
}

func TestSchemaRefusesWrongValues(t *testing.T) {
	for value, word := range map[string]string{
		"variant=memory":            "variant",
		"image.digest=sha256:1234":  "digest",
		"image.sha=1":               "sha",
		"etcd.servers=10.0.0.1":     "servers",
		"etcd.servers=":             "servers",
		"maxConnections=0":          "maxConnections",
		"reclaimSeconds=never":      "reclaimSeconds",
		"extraArgs={storage}":       "extraArgs",
		"monitoring.podMonitor=yes": "podMonitor",
		"replicas=3":                "replicas",
	} {
		output, err := run("template", "x", chart, "--namespace", "kube-system", "--kube-version", kubernetes, "--set", value)
		if err == nil || !strings.Contains(output, word) {
			t.Errorf("%s: %v\n%s", value, err, output)
		}
	}
	if output, err := run("template", "x", chart, "--namespace", "default", "--kube-version", kubernetes); err == nil || !strings.Contains(output, "kube-system") {
		t.Errorf("another namespace: %v\n%s", err, output)
	}
	if output, err := run("template", "x", chart, "--namespace", "kube-system", "--kube-version", "1.33.9"); err == nil || !strings.Contains(output, "kubeVersion") {
		t.Errorf("Kubernetes 1.33: %v\n%s", err, output)
	}
}

func TestValuesChangeTheServer(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	rendered := string(bytes.Join(template(t, "image.repository=registry.example/c", "image.digest="+digest, "image.pullPolicy=Always",
		"etcd.servers=https://10.0.0.1:2379\\,https://10.0.0.2:2379", "etcd.clusterServers=", "variant=etcd",
		"extraArgs={--watch-window-events=5}", "nodeSelector.a=b", "imagePullSecrets[0].name=pull",
		"monitoring.podMonitor=true", "monitoring.labels.release=main"), nil))
	for _, want := range []string{
		`image: "registry.example/c@` + digest + `"`, "imagePullPolicy: Always", `value: "https://10.0.0.1:2379,https://10.0.0.2:2379"`,
		`- "--watch-window-events=5"`, "a: b", "- name: pull", "release: main",
	} {
		if !strings.Contains(rendered, want) {
			t.Errorf("%s is missing in\n%s", want, rendered)
		}
	}
	if strings.Contains(rendered, "--cluster-etcd") {
		t.Errorf("flags for the etcd of kube-apiserver in\n%s", rendered)
	}
}

// TestFilesNameTheVersionOfTheServer checks that all files name the version of the release. Different programs read
// these files, so the version cannot be in one place.
func TestFilesNameTheVersionOfTheServer(t *testing.T) {
	version := regexp.MustCompile(`(?m)^version = "(.+)"$`).FindStringSubmatch(read(t, "Cargo.toml"))[1]
	for file, pattern := range map[string]string{
		"Dockerfile": `image\.version="(.+?)"`,
		"charts/coordination-apiserver/Chart.yaml": `(?m)^(?:appV|v)ersion: (.+)$`,
		"manifests/disk/deployment.yaml":           `image: coordination-apiserver:(.+)`,
		"manifests/etcd/daemonset.yaml":            `image: coordination-apiserver:(.+)`,
		"manifests/static-pod/pod.yaml":            `image: coordination-apiserver:(.+)`,
	} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s: no version", file)
		}
		for _, match := range found {
			if match[1] != version {
				t.Errorf("%s: %s, not %s", file, match[1], version)
			}
		}
	}
}

// overlay renders an overlay of a folder of manifests/ and components.
func overlay(t *testing.T, of variant) [][]byte {
	t.Helper()
	manifests, err := filepath.Abs(filepath.Join(repository, "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	relative := func(name string) string {
		path, err := filepath.Rel(folder, filepath.Join(manifests, name))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	lines := "resources: [" + relative(of.folder) + "]\n"
	for _, component := range of.components {
		lines += "components: [" + relative(component) + "]\n"
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return kustomize(t, folder)
}

func kustomize(t *testing.T, folder string) [][]byte {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("%s: %s", folder, err)
	}
	text, err := rendered.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return documents(t, string(text))
}

// template renders the chart with these values.
func template(t *testing.T, values ...string) [][]byte {
	t.Helper()
	output, err := run(append([]string{"template", "coordination-apiserver", chart, "--namespace", "kube-system", "--kube-version", kubernetes}, set(values)...)...)
	if err != nil {
		t.Fatalf("%v: %s\n%s", values, err, output)
	}
	return documents(t, output)
}

func set(values []string) (arguments []string) {
	for _, value := range values {
		arguments = append(arguments, "--set", value)
	}
	return arguments
}

// run runs helm. It returns helm's standard output, and after a failure also helm's standard error.
func run(arguments ...string) (string, error) {
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), asHelm+"=1", "KUBECONFIG=/dev/null")
	var errors bytes.Buffer
	command.Stderr = &errors
	output, err := command.Output()
	if err != nil {
		output = append(output, errors.Bytes()...)
	}
	return string(output), err
}

func read(t *testing.T, path string) string {
	t.Helper()
	if !strings.HasPrefix(path, repository) {
		path = filepath.Join(repository, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents splits YAML into documents, and drops those without an object.
func documents(t *testing.T, text string) (found [][]byte) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if err == io.EOF {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(document), "kind:") {
			found = append(found, document)
		}
	}
}

func objects(t *testing.T, documents [][]byte) (found []unstructured.Unstructured) {
	t.Helper()
	for _, document := range documents {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("%s\n%s", err, document)
		}
		found = append(found, object)
	}
	return found
}

// normal returns the objects by kind and name, without the labels that only a chart has. It sorts the lists whose order
// has no meaning.
func normal(t *testing.T, documents [][]byte) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, object := range objects(t, documents) {
		labels := object.GetLabels()
		delete(labels, "app.kubernetes.io/managed-by")
		delete(labels, "helm.sh/chart")
		object.SetLabels(labels)
		sorted(object.Object)
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if _, isKnown := found[key]; isKnown {
			t.Errorf("%s appears twice", key)
		}
		found[key] = object.Object
	}
	return found
}

// sorted sorts the lists whose order has no meaning, at any depth of an object.
func sorted(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			sorted(inner)
			list, isList := inner.([]any)
			if isList && slices.Contains([]string{"args", "env", "volumeMounts", "volumes"}, key) {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
		}
	case []any:
		for _, inner := range value {
			sorted(inner)
		}
	}
}

func convert(t *testing.T, from, into any) {
	t.Helper()
	text, err := yaml.Marshal(from)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
