{# SPDX-License-Identifier: Apache-2.0 #}
{# Spack's own module file for Lmod, which gives back what a CANN in the user's shell had set. #}
{% extends "modules/modulefile.lua" %}
{% block environment %}
{{ super() | replace('setenv("ASCEND_', 'pushenv("ASCEND_') }}
{% endblock %}
