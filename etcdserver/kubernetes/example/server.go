package main

import (
	"fmt"
	"net"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"

	"github.com/ashlar-dev/storage/etcdserver/kubernetes"
)

// prefix is the prefix of all keys.
const prefix = "/registry/apiextensions.kubernetes.io"

// newServer returns an API server of custom resources that keeps its objects in the store, and the configuration of a client with all
// permissions. All other clients have none.
func newServer(store *kubernetes.Store, listener net.Listener) (*genericserver.GenericAPIServer, *rest.Config, error) {
	config := genericserver.NewRecommendedConfig(apiserver.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	config.Authentication.Authenticator = union.New() // has no users; the server adds the token of the client
	config.Authorization.Authorizer = authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme)
	config.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)

	serving := genericoptions.NewSecureServingOptions().WithLoopback()
	serving.Listener = listener
	serving.BindPort = listener.Addr().(*net.TCPAddr).Port
	serving.ServerCert.CertDirectory = "" // keep the certificate in memory
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, nil, err
	}
	if err := serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, nil, err
	}

	// This is the complete change: calls to etcd go to the store instead.
	etcd := genericoptions.NewEtcdOptions(
		storagebackend.NewDefaultConfig(prefix, apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)))
	config.RESTOptionsGetter = store.RESTOptions(etcd.CreateRESTOptionsGetter(
		&genericoptions.SimpleStorageFactory{StorageConfig: etcd.StorageConfig}, nil))
	custom := store.RESTOptions(options.NewCRDRESTOptionsGetter(*etcd, nil, config.StorageObjectCountTracker))

	all := &apiserver.Config{GenericConfig: config, ExtraConfig: apiserver.ExtraConfig{CRDRESTOptionsGetter: custom}}
	complete := all.Complete()
	// With several API servers, an aggregator in front of them serves discovery. Here there is only one server.
	complete.GenericConfig.EnableDiscovery = true
	server, err := complete.New(genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, nil, fmt.Errorf("API server: %w", err)
	}
	return server.GenericAPIServer, server.GenericAPIServer.LoopbackClientConfig, nil
}
