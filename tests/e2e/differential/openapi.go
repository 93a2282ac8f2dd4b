package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// openAPI has the paths of the OpenAPI documents about Leases that both servers publish. It lacks the v3 document of
// v1beta1, since kube-apiserver's v1beta1 has no Leases. kube-apiserver's v2 document describes all APIs.
var openAPI = []string{"/openapi/v3/apis/coordination.k8s.io/v1", "/openapi/v2"}

// leasePaths is the prefix of all paths of coordination.k8s.io/v1 in the documents.
const leasePaths = "/apis/coordination.k8s.io/v1/"

// knownPlace is an accepted difference. Its pattern matches a text `DOCUMENT PLACE: THEIRS <> OURS`.
type knownPlace struct {
	reason  string
	pattern *regexp.Regexp
}

// knownOpenAPI has the accepted differences from kube-apiserver of any version.
var knownOpenAPI = []knownPlace{
	{"OpenAPI: the documents have the name and the version of their server", regexp.MustCompile(`^/openapi/\S+ /info/(title|version): "`)},
	{"OpenAPI: kube-apiserver checks bearer tokens, and our server does not", regexp.MustCompile(`^/openapi/\S+ /(components/securitySchemes|securityDefinitions|security): .* <> nothing$`)},
	{"OpenAPI: kube-apiserver's v1beta1 has no Leases", regexp.MustCompile(`^/openapi/v2 /(paths/|definitions/io\.k8s\.api\.coordination\.)\S*v1beta1\S*: nothing <> `)},
	{"OpenAPI: kube-apiserver names every group of the options of deletions and of events", regexp.MustCompile(`^/openapi/v2 \S+\.(DeleteOptions|WatchEvent)/x-kubernetes-group-version-kind: `)},
	{"OpenAPI: kube-apiserver names formats of the body of a GET, which has none", regexp.MustCompile(`^/openapi/v2 /paths//apis/coordination.k8s.io/v1(beta1)?//get/consumes: .* <> \["\*/\*"\]$`)},
}

// known134OpenAPI has further accepted differences, from kube-apiserver 1.34.
var known134OpenAPI = []knownPlace{
	{"1.34: OpenAPI has no shard selectors", regexp.MustCompile(`^/openapi/\S+ \S*/(query shardSelector|shardInfo|\S*\.ShardInfo): nothing <> `)},
	{"1.34: OpenAPI has defaults within lists and maps", regexp.MustCompile(`^/openapi/v3/\S+ \S+/(items|additionalProperties)/(default: (""|\{\}) <> nothing|allOf: \[\{"\$ref":"[^"]*"\}\] <> nothing|\$ref: nothing <> )`)},
	{"1.34: OpenAPI v3 names every group of the options of deletions and of events", regexp.MustCompile(`^/openapi/v3/\S+ \S+\.(DeleteOptions|WatchEvent)/x-kubernetes-group-version-kind: `)},
	{"1.34: OpenAPI has a type of list for the details of a Status", regexp.MustCompile(`^/openapi/\S+ \S+\.Status/properties/details/x-kubernetes-list-type: "atomic" <> nothing$`)},
}

// compareOpenAPI compares the documents of both servers without their descriptions, and reports the differences.
func compareOpenAPI(ctx context.Context, both pair, is134 bool, found *report) error {
	known := knownOpenAPI
	if is134 {
		known = append(slices.Clone(known), known134OpenAPI...)
	}
	for _, target := range openAPI {
		var documents [2]map[string]any
		for at, server := range both {
			answer, err := server.ask(ctx, 0, message{method: http.MethodGet, target: target, header: [][2]string{{"Accept", "application/json"}}}, false)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(answer.body, &documents[at]); err != nil || answer.status != http.StatusOK {
				return fmt.Errorf("%s: %s: %d %.200s", server.name, target, answer.status, answer.body)
			}
		}
	places:
		for _, place := range differencesOfOpenAPI(documents[0], documents[1]) {
			place = target + " " + place
			for _, known := range known {
				if known.pattern.MatchString(place) {
					found.known(known.reason)
					continue places
				}
			}
			found.differsInOpenAPI(place)
		}
	}
	return nil
}

// differencesOfOpenAPI returns each difference of two documents as a text `PLACE: THEIRS <> OURS`.
func differencesOfOpenAPI(theirs, ours map[string]any) []string {
	documents := [2]map[string]any{normalOpenAPI(theirs), normalOpenAPI(ours)}
	// kube-apiserver's v2 document also describes other APIs. Their paths and schemas are removed.
	keep := func(name string, also func(string) bool) {
		their, _ := documents[0][name].(map[string]any)
		our, _ := documents[1][name].(map[string]any)
		maps.DeleteFunc(their, func(key string, _ any) bool { return our[key] == nil && !also(key) })
	}
	keep("paths", func(path string) bool { return strings.HasPrefix(path, leasePaths) })
	keep("definitions", func(name string) bool {
		return strings.Contains(name, ".coordination.v1.Lease") && !strings.Contains(name, "Candidate")
	})
	var places []string
	compareValues("", documents[0], documents[1], &places)
	return places
}

// normalOpenAPI returns the canonical form of a document. This form has no descriptions. Each operation has all its
// parameters, also those of its path, keyed by place and name.
func normalOpenAPI(document map[string]any) map[string]any {
	shared, _ := document["parameters"].(map[string]any)
	normal := map[string]any{}
	for key, value := range document {
		if key != "parameters" {
			normal[key] = normalValue(value, shared)
		}
	}
	paths, _ := normal["paths"].(map[string]any)
	for _, item := range paths {
		item := item.(map[string]any)
		common, _ := item["parameters"].(map[string]any)
		delete(item, "parameters")
		for _, operation := range item {
			operation := operation.(map[string]any)
			parameters, _ := operation["parameters"].(map[string]any)
			all := maps.Clone(common)
			if all == nil {
				all = map[string]any{}
			}
			maps.Copy(all, parameters)
			operation["parameters"] = all
		}
	}
	return normal
}

func normalValue(value any, shared map[string]any) any {
	switch value := value.(type) {
	case map[string]any:
		normal := map[string]any{}
		for key, inner := range value {
			if _, isText := inner.(string); key == "description" && isText || key == "required" && inner == false {
				continue
			}
			if list, is := inner.([]any); is && key == "parameters" {
				normal[key] = byName(list, shared)
				continue
			}
			normal[key] = normalValue(inner, shared)
		}
		return normal
	case []any:
		normal := make([]any, len(value))
		for at, inner := range value {
			normal[at] = normalValue(inner, shared)
		}
		// The order of a list of strings has no meaning in these documents.
		if !slices.ContainsFunc(normal, func(inner any) bool { _, is := inner.(string); return !is }) {
			slices.SortFunc(normal, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		}
		return normal
	default:
		return value
	}
}

// byName returns parameters keyed by place and name. It replaces references by the shared parameters of the document.
func byName(parameters []any, shared map[string]any) map[string]any {
	named := map[string]any{}
	for _, parameter := range parameters {
		normal := normalValue(parameter, shared).(map[string]any)
		if reference, is := normal["$ref"].(string); is {
			normal, _ = normalValue(shared[strings.TrimPrefix(reference, "#/parameters/")], shared).(map[string]any)
		}
		named[fmt.Sprint(normal["in"], " ", normal["name"])] = normal
	}
	return named
}

// compareValues appends each difference of two values to places, in the order of the keys.
func compareValues(place string, theirs, ours any, places *[]string) {
	their, isMap := theirs.(map[string]any)
	our, areMaps := ours.(map[string]any)
	if !isMap || !areMaps {
		if !reflect.DeepEqual(theirs, ours) {
			*places = append(*places, fmt.Sprintf("%s: %s <> %s", place, shownValue(theirs), shownValue(ours)))
		}
		return
	}
	all := maps.Clone(their)
	maps.Copy(all, our)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		compareValues(place+"/"+key, member(their, key), member(our, key), places)
	}
}

// nothing stands for a missing member of an object. A null is a different value.
type nothing struct{}

func member(of map[string]any, key string) any {
	if value, is := of[key]; is {
		return value
	}
	return nothing{}
}

func shownValue(value any) string {
	if value == (nothing{}) {
		return "nothing"
	}
	text, _ := json.Marshal(value)
	return fmt.Sprintf("%.300s", text)
}
