"""TensorFlow's messages of Protocol Buffers, with the fields that are read and written here.

What a file holds besides stays in a message as an unknown field. The messages stand in a pool of their own,
so that an installed TensorFlow, which registers the same names, is not disturbed.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = """
DT_INVALID DT_FLOAT DT_DOUBLE DT_INT32 DT_UINT8 DT_INT16 DT_INT8 DT_STRING DT_COMPLEX64 DT_INT64 DT_BOOL
DT_QINT8 DT_QUINT8 DT_QINT32 DT_BFLOAT16 DT_QINT16 DT_QUINT16 DT_UINT16 DT_COMPLEX128 DT_HALF DT_RESOURCE
DT_VARIANT DT_UINT32 DT_UINT64 DT_FLOAT8_E5M2 DT_FLOAT8_E4M3FN DT_FLOAT8_E4M3FNUZ DT_FLOAT8_E4M3B11FNUZ
DT_FLOAT8_E5M2FNUZ DT_INT4 DT_UINT4 DT_INT2 DT_UINT2
"""
TYPE_NAMES = dict(enumerate(_TYPES.split()))
"""``DataType``: the names of element types by their numbers; each has a ``_REF`` form 100 further up."""

_MESSAGES = """
Dim: size 1 int64, name 2 string
TensorShapeProto: dim 2 Dim*, unknown_rank 3 bool
TensorProto: dtype 1 DataType, tensor_shape 2 TensorShapeProto, tensor_content 4 bytes,
    float_val 5 float*, double_val 6 double*, int_val 7 int32*, string_val 8 bytes*, scomplex_val 9 float*,
    int64_val 10 int64*, bool_val 11 bool*, dcomplex_val 12 double*, half_val 13 int32*,
    uint32_val 16 uint32*, uint64_val 17 uint64*
ListValue: s 2 bytes*, i 3 int64*, f 4 float*, b 5 bool*, type 6 DataType*, shape 7 TensorShapeProto*,
    tensor 8 TensorProto*, func 9 NameAttrList*
AttrValue: list 1 ListValue|value, s 2 bytes|value, i 3 int64|value, f 4 float|value, b 5 bool|value,
    type 6 DataType|value, shape 7 TensorShapeProto|value, tensor 8 TensorProto|value,
    placeholder 9 string|value, func 10 NameAttrList|value
NameAttrList: name 1 string, attr 2 map AttrValue
NodeDef: name 1 string, op 2 string, input 3 string*, device 4 string, attr 5 map AttrValue
ArgDef: name 1 string, type 3 DataType, type_attr 4 string, number_attr 5 string, type_list_attr 6 string
OpDef: name 1 string, input_arg 2 ArgDef*, output_arg 3 ArgDef*, control_output 20 string*
FunctionDef: signature 1 OpDef, node_def 3 NodeDef*, ret 4 map string, attr 5 map AttrValue,
    control_ret 6 map string
GradientDef: function_name 1 string, gradient_func 2 string
RegisteredGradient: gradient_func 1 string, registered_op_type 2 string
FunctionDefLibrary: function 1 FunctionDef*, gradient 2 GradientDef*,
    registered_gradients 3 RegisteredGradient*
VersionDef: producer 1 int32, min_consumer 2 int32
GraphDef: node 1 NodeDef*, library 2 FunctionDefLibrary, versions 4 VersionDef
TensorInfo: name 1 string, dtype 2 DataType, tensor_shape 3 TensorShapeProto
SignatureDef: inputs 1 map TensorInfo, outputs 2 map TensorInfo, method_name 3 string
SaverDef: filename_tensor_name 1 string, restore_op_name 3 string
MetaInfoDef: tags 4 string*
CapturedTensor: name 1 string, concrete_function 2 string
ObjectReference: node_id 1 int32, local_name 2 string
SavedVariable: dtype 1 DataType, trainable 3 bool, name 6 string
SavedObject: children 1 ObjectReference*, variable 7 SavedVariable, captured_tensor 12 CapturedTensor
NoneValue: unused 1 int64
StructuredValues: values 1 StructuredValue*
StructuredValue: none_value 1 NoneValue, list_value 51 StructuredValues, tuple_value 52 StructuredValues
SavedConcreteFunction: bound_inputs 2 int32*, output_signature 4 StructuredValue
SavedObjectGraph: nodes 1 SavedObject*, concrete_functions 2 map SavedConcreteFunction
MetaGraphDef: meta_info_def 1 MetaInfoDef, graph_def 2 GraphDef, saver_def 3 SaverDef,
    signature_def 5 map SignatureDef, object_graph_def 7 SavedObjectGraph
SavedModel: saved_model_schema_version 1 int64, meta_graphs 2 MetaGraphDef*
BundleHeaderProto: num_shards 1 int32, endianness 2 int32, version 3 VersionDef
BundleEntryProto: dtype 1 DataType, shape 2 TensorShapeProto, shard_id 3 int32, offset 4 int64, size 5 int64,
    crc32c 6 fixed32, slices 7 bytes*
"""
"""Each message with its fields: name, number and type. ``*`` marks lists, ``|`` the name of a oneof."""

_Field = descriptor_pb2.FieldDescriptorProto


def _field(message: Any, text: str) -> None:
    name, number, *kind = text.split()
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    spelled = kind[-1]
    if kind[0] == "map":
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _field(entry, "key 1 string")
        _field(entry, f"value 2 {spelled}")
        field.label, spelled = _Field.LABEL_REPEATED, f"{message.name}.{entry.name}"
    if spelled.endswith("*"):
        field.label, spelled = _Field.LABEL_REPEATED, spelled[:-1]
    spelled, _, oneof = spelled.partition("|")
    if oneof:
        if not message.oneof_decl:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = 0
    primitive = getattr(_Field, f"TYPE_{spelled.upper()}", None) if spelled.islower() else None
    if primitive is not None:
        field.type = primitive
    else:
        field.type_name = f".tensorflow.{spelled}"
        field.type = _Field.TYPE_ENUM if spelled == "DataType" else _Field.TYPE_MESSAGE


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="stopgrad/tensorflow.proto", package="tensorflow", syntax="proto3"
    )
    kinds = file.enum_type.add(name="DataType")
    for number, name in TYPE_NAMES.items():
        kinds.value.add(name=name, number=number)
        if number:
            kinds.value.add(name=f"{name}_REF", number=number + 100)
    for line in _MESSAGES.strip().replace("\n ", " ").splitlines():
        name, _, fields = line.partition(": ")
        message = file.message_type.add(name=name)
        for text in fields.split(", "):
            _field(message, text)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)


_CLASSES = _classes()
AttrValue = _CLASSES["tensorflow.AttrValue"]
BundleEntryProto = _CLASSES["tensorflow.BundleEntryProto"]
BundleHeaderProto = _CLASSES["tensorflow.BundleHeaderProto"]
GraphDef = _CLASSES["tensorflow.GraphDef"]
NodeDef = _CLASSES["tensorflow.NodeDef"]
SavedModel = _CLASSES["tensorflow.SavedModel"]
TensorProto = _CLASSES["tensorflow.TensorProto"]
