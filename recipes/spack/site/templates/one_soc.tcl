{# SPDX-License-Identifier: Apache-2.0 #}
{# Spack's own module file for environment-modules, with the conflict before what is loaded along: #}
{# else the refusal would name a dependency. #}
{% extends "modules/modulefile.tcl" %}
{% block autoloads %}
# Two SoCs at once would mix their operators.
conflict {{ spec.name }}
{{ super() }}
{% endblock %}
