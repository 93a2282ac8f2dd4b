package suite

// The reason that several gaps have in common. When they close, kube-controller-manager can speak protobuf as well, as it
// does by itself: E2E_KCM_CONTENT_TYPE in controlplane/up.
const noProtobuf = "bodies in protobuf are not read yet"

// What our server does not do yet, by the name of the test that shows it, with the reason. A test that passes although
// it stands here fails: the list can only be right.
var gaps = map[string]string{
	"TestAPIServerIdentity":                 noProtobuf,
	"TestInformer/protobuf":                 noProtobuf,
	"TestInformerRestart/protobuf":          noProtobuf,
	"TestLeaderElection/abandoned/protobuf": noProtobuf,
	"TestLeaderElection/released/protobuf":  noProtobuf,
	"TestManyWatches/protobuf":              noProtobuf,
	"TestNodeHeartbeat/protobuf/ready":      noProtobuf,
	"TestNodeHeartbeat/protobuf/deleted":    noProtobuf,

	"TestKubectl/get-table": "lists and objects are not rendered as Table yet",

	"TestSwitch/informers-after-rollback": "a watch that ends because the server stops does not end with 410, so that clients resume at our version",
}
